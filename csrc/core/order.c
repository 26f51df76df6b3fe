/* order.c: in which order the nodes of a graph would run depth first, and what memory that and their own order need.
 * Numbers only: what a node is and what of it lies in the arena, graphdiff/plan/schedule.py says. */
#include "gdi.h"
#include <stdlib.h>
#include <string.h>

typedef struct gdi_graph {
    const gd_order_spec *s;
    int32_t *read;           /* whose memory a node reads, from first[i] on, each once; -1 ends a list that is shorter than the operands */
    int32_t *owner;          /* whose memory a node's result is: its own, or that of what it is a view of */
    int32_t *last;           /* place of the last reader */
    int64_t *needs, *frees;  /* bytes at once to make a node depth first, and those of them that it does not leave */
    int32_t *operand;        /* its operands in the order in which they are made, as `read` */
    int32_t *stack;
} gdi_graph;

/* An operand of a node of many. */
typedef struct gdi_choice {
    int64_t frees;
    int32_t at, node;
} gdi_choice;

static int compare_choices(const void *a, const void *b)
{
    const gdi_choice *x = a, *y = b;
    if (x->frees != y->frees)
        return x->frees < y->frees ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

static int is_valid(const gd_order_spec *s)
{
    int64_t sum = 0;         /* no sum below is larger: of the results of nodes, and of their operands */
    if (s->n < 0 || s->n > INT32_MAX - 1 || s->first[0] != 0)
        return 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (s->first[i + 1] < s->first[i] || s->nbytes[i] < 0 || gdi_add(sum, s->nbytes[i], &sum))
            return 0;
        for (int32_t k = s->first[i]; k < s->first[i + 1]; k++)
            if (s->operand[k] < 0 || s->operand[k] >= i || gdi_add(sum, s->nbytes[s->operand[k]], &sum))
                return 0;
    }
    for (int64_t i = 0; i < s->n_output; i++)
        if (s->output[i] < 0 || s->output[i] >= s->n)
            return 0;
    return 1;
}

/* The distinct ones of `count` numbers, in their order, to `to`; seen[x] == mark: met already. */
static void distinct(const int32_t *of, int32_t count, int32_t *to, int32_t *seen, int32_t mark)
{
    int32_t n = 0;
    for (int32_t k = 0; k < count; k++)
        if (of[k] >= 0 && seen[of[k]] != mark) {
            seen[of[k]] = mark;
            to[n++] = of[k];
        }
    if (n < count)
        to[n] = -1;
}

/* Fills `owner` and `read`. `last` is used for marks. */
static void find_readers(gdi_graph *g)
{
    const gd_order_spec *s = g->s;
    memset(g->last, 0xff, (size_t)s->n * sizeof *g->last);
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t from = s->first[i], count = s->first[i + 1] - from;
        g->owner[i] = i;
        for (int32_t k = 0; k < count; k++) {
            int32_t b = g->owner[s->operand[from + k]];
            g->read[from + k] = s->nbytes[b] ? b : -1;
        }
        distinct(g->read + from, count, g->read + from, g->last, i);
        if (count == 1 && s->flags[i] & GD_ORDER_VIEW)
            g->owner[i] = g->owner[s->operand[from]];
    }
}

/* The end of the list that begins at first[i]. */
static int32_t end_of(const gdi_graph *g, const int32_t *list, int32_t i)
{
    int32_t k = g->s->first[i];
    while (k < g->s->first[i + 1] && list[k] >= 0)
        k++;
    return k;
}

/* The bytes that are there at once at most, about: an elementwise operation may write over an operand that dies with it. order: NULL, as they
 * are numbered. */
static int64_t peak_of(gdi_graph *g, const int32_t *order, int64_t n)
{
    const gd_order_spec *s = g->s;
    memset(g->last, 0xff, (size_t)s->n * sizeof *g->last);
    for (int32_t at = 0; at < n; at++) {
        const int32_t i = order ? order[at] : at, end = end_of(g, g->read, i);
        for (int32_t k = s->first[i]; k < end; k++)
            g->last[g->read[k]] = at;
    }
    int64_t now = 0, most = 0;
    for (int32_t at = 0; at < n; at++) {
        const int32_t i = order ? order[at] : at, end = end_of(g, g->read, i);
        const int64_t own = s->nbytes[i];
        int64_t dying = 0, here = now + own;
        for (int32_t k = s->first[i]; k < end; k++)
            if (g->last[g->read[k]] == at)
                dying += s->nbytes[g->read[k]];
        now = here - dying;
        if (dying && s->flags[i] & GD_ORDER_ELEMENTWISE)
            here = now > here - own ? now : here - own;
        if (here > most)
            most = here;
        if (own && g->last[i] < 0)               /* nobody reads it */
            now -= own;
    }
    return most;
}

/* The operands of node i, each once, first the one that needs most beside what it leaves; returns how many they are. */
static int32_t sort_operands(gdi_graph *g, int32_t i, gdi_choice *choice)
{
    const gd_order_spec *s = g->s;
    const int32_t from = s->first[i], count = s->first[i + 1] - from;
    int32_t *to = g->operand + from;
    distinct(s->operand + from, count, to, g->last, i);
    const int32_t n = end_of(g, g->operand, i) - from;
    if (n > 1) {
        for (int32_t k = 0; k < n; k++)
            choice[k] = (gdi_choice){g->frees[to[k]], k, to[k]};
        qsort(choice, (size_t)n, sizeof *choice, compare_choices);
        for (int32_t k = 0; k < n; k++)
            to[k] = choice[k].node;
    }
    return n;
}

/* Operands right before what uses them; of several, first the one that needs most beside what it leaves (Sethi, Ullman 1970). Returns how many
 * nodes there are in the order: those that the outputs need. */
static int64_t depth_first(gdi_graph *g, gdi_choice *choice, int32_t *order)
{
    const gd_order_spec *s = g->s;
    memset(g->last, 0xff, (size_t)s->n * sizeof *g->last);
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t n = sort_operands(g, i, choice), *operand = g->operand + s->first[i];
        int64_t held = 0, most = 0;
        for (int32_t k = 0; k < n; k++) {
            if (held + g->needs[operand[k]] > most)
                most = held + g->needs[operand[k]];
            held += s->nbytes[operand[k]];
        }
        if (held + s->nbytes[i] > most)
            most = held + s->nbytes[i];
        g->needs[i] = most;
        g->frees[i] = most - s->nbytes[i];
    }
    memset(g->last, 0, (size_t)s->n * sizeof *g->last);          /* 1: done */
    int64_t top = 0, n = 0;
    for (int64_t k = s->n_output; k-- > 0;)
        g->stack[top++] = s->output[k];
    while (top) {
        int32_t i = g->stack[--top];
        if (i >= 0 && !g->last[i]) {
            const int32_t from = s->first[i], end = end_of(g, g->operand, i);
            if (from < end) {
                g->stack[top++] = ~i;
                for (int32_t k = end; k-- > from;)
                    if (!g->last[g->operand[k]])
                        g->stack[top++] = g->operand[k];
                continue;
            }
        }
        if (i < 0)                               /* its operands are done */
            i = ~i;
        if (!g->last[i]) {
            g->last[i] = 1;
            order[n++] = i;
        }
    }
    return n;
}

int gd_order(const gd_order_spec *s, int32_t *order, int64_t *count, int64_t *own_nbytes, int64_t *nbytes)
{
    if (!is_valid(s))
        return GD_BAD_PROGRAM;
    const int64_t n = s->n, edges = s->first[n];
    /* A node is put on the stack once for each of its readers, once as an output, and once to wait for its operands. */
    const int64_t numbers = 2 * n + 2 * edges + (n + edges + s->n_output), longs = 2 * n;
    char *all = gdi_alloc(longs * 8 + (edges + 1) * (int64_t)sizeof(gdi_choice) + numbers * 4);
    if (!all)
        return GD_NO_MEMORY;
    gdi_choice *choice = (gdi_choice *)(void *)(all + longs * 8);
    int32_t *at = (int32_t *)(void *)(choice + edges + 1);
    gdi_graph g = {.s = s, .needs = (int64_t *)(void *)all, .owner = at, .last = at + n, .read = at + 2 * n, .operand = at + 2 * n + edges,
                   .stack = at + 2 * n + 2 * edges};
    g.frees = g.needs + n;
    find_readers(&g);
    *own_nbytes = peak_of(&g, NULL, n);
    *count = *nbytes = -1;
    if (*own_nbytes >= s->least_nbytes) {
        *count = depth_first(&g, choice, order);
        *nbytes = peak_of(&g, order, *count);
    }
    gdi_free(all);
    return GD_OK;
}
