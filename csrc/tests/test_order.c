/* test_order.c: the search for an order, on random graphs and on numbers that are no graph.
 * Prints "N passed, N failed". */
#include "build.h"

enum { NODES = 60, EDGES = 400 };

typedef struct graph {
    gd_order_spec s;
    int32_t first[NODES + 1], operand[EDGES], output[3];
    int64_t nbytes[NODES];
    uint8_t flags[NODES];
} graph;

/* The last node and two others are outputs; every node but the first reads some before it, the same one several times at that. */
static void random_graph(graph *g)
{
    int32_t edges = 0;
    for (int i = 0; i < NODES; i++) {
        g->first[i] = edges;
        g->nbytes[i] = below(3) ? 8 * below(1000) : 0;
        g->flags[i] = (uint8_t)below(4);
        for (int64_t k = i ? below(5) : 0; k > 0; k--)
            g->operand[edges++] = (int32_t)below(i);
    }
    g->first[NODES] = edges;
    g->output[0] = NODES - 1;
    g->output[1] = (int32_t)below(NODES);
    g->output[2] = g->output[1];
    g->s = (gd_order_spec){NODES, g->first, g->operand, g->nbytes, g->flags, g->output, 3, 0};
}

/* Is every node there once at most, behind its operands, and are all outputs? */
static int is_order(const graph *g, const int32_t *order, int64_t count)
{
    int8_t done[NODES] = {0};
    for (int64_t k = 0; k < count; k++) {
        if (order[k] < 0 || order[k] >= NODES || done[order[k]])
            return 0;
        for (int32_t e = g->first[order[k]]; e < g->first[order[k] + 1]; e++)
            if (!done[g->operand[e]])
                return 0;
        done[order[k]] = 1;
    }
    return done[g->output[0]] && done[g->output[1]];
}

static void test_random(void)
{
    for (int round = 0; round < 200; round++) {
        graph g;
        int32_t order[NODES];
        int64_t count, own, nbytes, sum = 0, most = 0;
        random_graph(&g);
        for (int i = 0; i < NODES; i++) {
            sum += g.nbytes[i];
            most = g.nbytes[i] > most && !(g.flags[i] & GD_ORDER_ELEMENTWISE) ? g.nbytes[i] : most;
        }
        CHECK(gd_order(&g.s, order, &count, &own, &nbytes) == GD_OK && is_order(&g, order, count));
        CHECK(own >= most && own <= sum && nbytes >= 0 && nbytes <= sum);
        g.s.least_nbytes = own + 1;
        CHECK(gd_order(&g.s, order, &count, &own, &nbytes) == GD_OK && count == -1 && nbytes == -1);
    }
}

/* Four large parts that are added up, each with the sum so far: made first, all are there at once. */
static void test_parts(void)
{
    const int32_t first[] = {0, 0, 1, 2, 3, 4, 6, 8, 10}, operand[] = {0, 0, 0, 0, 1, 2, 5, 3, 6, 4}, output[] = {7};
    const int64_t nbytes[] = {0, 100, 100, 100, 100, 100, 100, 100};
    const uint8_t flags[] = {0, 0, 0, 0, 0, GD_ORDER_ELEMENTWISE, GD_ORDER_ELEMENTWISE, GD_ORDER_ELEMENTWISE};
    const gd_order_spec s = {8, first, operand, nbytes, flags, output, 1, 0};
    int32_t order[8];
    int64_t count, own, deep;
    CHECK(gd_order(&s, order, &count, &own, &deep) == GD_OK && count == 8 && own == 400 && deep == 200);
}

static void test_refused(void)
{
    graph g;
    int32_t order[NODES];
    int64_t count, own, nbytes;
#define REFUSED(what) do { \
        random_graph(&g); \
        g.first[1] = 0, g.first[2] = 1, g.operand[0] = 0; \
        for (int i = 3; i <= NODES; i++) g.first[i] = 1; \
        CHECK(gd_order(&g.s, order, &count, &own, &nbytes) == GD_OK); \
        what; \
        CHECK(gd_order(&g.s, order, &count, &own, &nbytes) == GD_BAD_PROGRAM); \
    } while (0)
    REFUSED(g.operand[0] = 1);
    REFUSED(g.operand[0] = -1);
    REFUSED(g.first[0] = 1);
    REFUSED(g.first[2] = -1);
    REFUSED(g.nbytes[5] = -8);
    REFUSED(g.nbytes[5] = g.nbytes[6] = INT64_MAX / 2 + 1);
    REFUSED(g.output[1] = NODES);
    REFUSED(g.output[1] = -1);
    REFUSED(g.s.n = -1);
    random_graph(&g);
    const int64_t live = gd_alloc_live();
    gd_alloc_fail_after(0);
    CHECK(gd_order(&g.s, order, &count, &own, &nbytes) == GD_NO_MEMORY);
    gd_alloc_fail_after(-1);
    CHECK(gd_order(&g.s, order, &count, &own, &nbytes) == GD_OK && gd_alloc_live() == live);
}

int main(int argc, char **argv)
{
    if (choose_isa(argc, argv))
        return 2;
    test_random();
    test_parts();
    test_refused();
    return report();
}
