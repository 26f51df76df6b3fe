/* loops.c: operations of a fused group that one loop does: what f makes stays in a register instead of going through a block in
 * L1, which costs as much as the operation. The bits are those of the operations one by one. They need not follow each other:
 * the loop runs where the last of them stands. */
#include "program.h"

/* An expression, operator first; numbers below LEAVES are its values, each once, numbered as the loop takes them. */
enum { LEAVES = 8, LONGEST = 16 };
#define OP(NAME) (LEAVES + GD_OP_##NAME)
typedef struct pattern {
    int16_t text[LONGEST];
    uint8_t singles;         /* values that must be one element, by bits */
    uint8_t n;
} pattern;
static const pattern patterns[GDI_LOOPS] = {
    [GDI_LOOP_BLEND] = {{OP(ADD), OP(MULTIPLY), 0, 1, OP(MULTIPLY), 2, 3}, 1 << 0 | 1 << 2, 4},
    [GDI_LOOP_BLEND_SQUARE] = {{OP(ADD), OP(MULTIPLY), 0, 1, OP(MULTIPLY), 2, OP(SQUARE), 3}, 1 << 0 | 1 << 2, 4},
    [GDI_LOOP_ROOT_STEP] = {{OP(SUBTRACT), 0, OP(DIVIDE), OP(MULTIPLY), 1, 2, OP(ADD), OP(SQRT), 3, 4}, 1 << 1 | 1 << 4, 5},
    [GDI_LOOP_GATE] = {{OP(ZMUL), OP(CAST), OP(GREATER), 0, 1, 2}, 1 << 1, 3},
    [GDI_LOOP_DIFFERENCE] = {{OP(SUBTRACT), OP(ZMUL_EITHER), 0, 1, OP(ZMUL_EITHER), 2, 3}, 0, 4},
    [GDI_LOOP_OPPOSITE] = {{OP(MULTIPLY), OP(NEGATIVE), 0, 1}, 0, 2},
};

/* What a text has been found to be. */
typedef struct found {
    uint8_t singles;                                         /* of the pattern */
    int16_t value[GDI_LOOP_VALUES], at[GDI_LOOP_VALUES];     /* number, and the line that reads it */
    int16_t line[LONGEST];                                   /* lines that the loop does */
    int lines;
} found;

static const int64_t *line_at(const gdi_group *g, int i) { return g->line + (int64_t)i * GDI_FUSED_LINE; }

static int reads_of(const int64_t *line, int64_t value)
{
    int n = 0;
    for (int k = 3; k < (line[0] == GD_OP_SUM ? 4 : GDI_FUSED_LINE); k++)
        n += line[k] == value;
    return n;
}

/* The line before i that makes `value` for one operand of line i alone; -1: there is none. */
static int maker(const gdi_group *g, int64_t value, int i)
{
    int j = i - 1;
    if (value < g->n || reads_of(line_at(g, i), value) != 1)
        return -1;
    for (; j >= 0 && line_at(g, j)[2] != value; j--)
        if (reads_of(line_at(g, j), value))
            return -1;
    if (j < 0 || g->gone[j] || (line_at(g, i)[2] != value && gdi_is_read(g->line, i + 1, g->lines, value)))
        return -1;
    return j;
}

static int is_single(const gdi_group *g, int value) { return value >= g->n_out && value < g->n && g->single[value]; }

static int dtype_at(const gdi_group *g, int64_t value, int i)
{
    if (value < g->n)
        return g->dtype_of[value];
    for (i--; i >= 0; i--)
        if (line_at(g, i)[2] == value)
            return (int)line_at(g, i)[1];
    return -1;
}

/* Does a line compute in the dtype that is looked for? A comparison makes bool of it. */
static int is_of_dtype(const gdi_group *g, int i)
{
    const int64_t *line = line_at(g, i);
    return line[0] == GD_OP_GREATER ? dtype_at(g, line[3], i) == g->dtype : line[1] == g->dtype;
}

static const int16_t *match(const gdi_group *g, const int16_t *text, int i, found *f);

static const int16_t *match_operand(const gdi_group *g, const int16_t *text, int64_t value, int i, found *f)
{
    if (*text < LEAVES) {
        if ((f->singles >> *text & 1) && !is_single(g, (int)value))
            return NULL;
        f->value[*text] = (int16_t)value;
        f->at[*text] = (int16_t)i;
        return text + 1;
    }
    const int j = maker(g, value, i);
    return j >= 0 ? match(g, text, j, f) : NULL;
}

/* Is line i what the text says? Returns where the text goes on, or NULL. Not deeper than a text is long. */
static const int16_t *match(const gdi_group *g, const int16_t *text, int i, found *f)
{
    const int64_t *line = line_at(g, i);
    const int op = *text - LEAVES;
    if (line[0] != op || !is_of_dtype(g, i))
        return NULL;
    f->line[f->lines++] = (int16_t)i;
    text++;
    if (line[4] < 0)
        return match_operand(g, text, line[3], i, f);
    const found before = *f;
    for (int turned = 0; turned < (op == GD_OP_ADD || op == GD_OP_MULTIPLY ? 2 : 1); turned++) {
        const int16_t *rest = match_operand(g, text, line[3 + turned], i, f);
        if (rest && (rest = match_operand(g, rest, line[4 - turned], i, f)))
            return rest;
        *f = before;
    }
    return NULL;
}

static int is_found(const found *f, int line)
{
    for (int k = 0; k < f->lines; k++)
        if (f->line[k] == line)
            return 1;
    return 0;
}

/* The loop reads its values where its last line stood: is one of them overwritten before that by another line? */
static int is_late(const gdi_group *g, const found *f, int leaf, int root)
{
    const int value = f->value[leaf];
    for (int j = f->at[leaf] + 1; j < root; j++) {
        const int to = (int)line_at(g, j)[2];
        if (is_found(f, j))
            continue;
        if (to == value)
            return 1;
        if (to < g->n_out && value < g->n && g->place[to].base == g->place[value].base && g->place[to].offset == g->place[value].offset)
            return 1;
    }
    return 0;
}

int gdi_find_pair(gdi_group *g, const gdi_table *t, int root, gdi_micro *m)
{
    const int64_t *b = line_at(g, root);
    if (b[0] == GD_OP_SUM || b[4] < 0 || b[5] >= 0)
        return 0;
    for (int turned = 0; turned < 2; turned++) {
        const int j = maker(g, b[3 + turned], root);
        if (j < 0)
            continue;
        const int64_t *a = line_at(g, j);
        gdi_micro pair = {.fn = NULL};
        if (a[4] >= 0 && a[5] < 0 && a[1] == b[1])
            gdi_pair_lookup(t, (int)a[0], (int)b[0], turned, (int)b[1], &pair);
        const found f = {.value = {(int16_t)a[3], (int16_t)a[4], (int16_t)b[4 - turned]}, .at = {(int16_t)j, (int16_t)j, (int16_t)root},
                         .line = {(int16_t)root, (int16_t)j}, .lines = 2};
        if (!pair.fn || is_late(g, &f, 0, root) || is_late(g, &f, 1, root))
            continue;
        g->gone[j] = g->gone[root] = 1;
        *m = pair;
        m->to = (uint8_t)b[2];
        for (int k = 0; k < 3; k++)
            m->from[k] = (uint8_t)f.value[k];
        return 1;
    }
    return 0;
}

int gdi_find_loop(gdi_group *g, int root, gdi_micro *m)
{
    g->dtype = line_at(g, root)[1];
    if (g->dtype != GD_FLOAT32 && g->dtype != GD_FLOAT64)
        return -1;
    for (int k = 0; k < GDI_LOOPS; k++) {
        found f;
        f.singles = patterns[k].singles;
        f.lines = 0;
        if (!match(g, patterns[k].text, root, &f))
            continue;
        int fits = 1;
        for (int v = 0; v < patterns[k].n; v++)
            fits = fits && !is_late(g, &f, v, root);
        if (!fits)
            continue;
        for (int i = 0; i < f.lines; i++)
            g->gone[f.line[i]] = 1;
        m->to = (uint8_t)line_at(g, root)[2];
        m->reads = patterns[k].n;
        m->singles = patterns[k].singles;
        for (int v = 0; v < GDI_LOOP_VALUES; v++)
            m->from[v] = (uint8_t)f.value[v < patterns[k].n ? v : 0];
        return k;
    }
    return -1;
}

/* Functions that one loop does together, as lines have them: see enum gdi_two. */
static const struct { int16_t first, second; } twos[] = {
    [GDI_TWO_SIGMOID] = {GD_OP_SIGMOID, GD_OP_SIGMOID_GRAD},
    [GDI_TWO_TANH] = {GD_OP_TANH, GD_OP_TANH_GRAD},
    [GDI_TWO_SIN] = {GD_OP_SIN, GD_OP_COS},
};

/* Is operand or register `value`, or the memory it lies in, written by line i? */
static int is_written(const gdi_group *g, int i, int value)
{
    const int to = (int)line_at(g, i)[2];
    return to == value || (to < g->n_out && value < g->n && g->place[to].base == g->place[value].base && g->place[to].offset == g->place[value].offset);
}

/* sigmoid(x) and sigmoid(-x), with -x between them, which nothing else reads. */
static int find_sigmoids(gdi_group *g, const gdi_table *t, int i, gdi_micro *m)
{
    const int64_t *a = line_at(g, i), *minus = a + GDI_FUSED_LINE, *b = minus + GDI_FUSED_LINE;
    if (i + 2 >= g->lines || g->gone[i + 2] || a[0] != GD_OP_SIGMOID || minus[0] != GD_OP_NEGATIVE || b[0] != GD_OP_SIGMOID)
        return 0;
    if (minus[1] != a[1] || b[1] != a[1] || minus[3] != a[3] || b[2] == a[2] || is_written(g, i, (int)a[3]) || maker(g, b[3], i + 2) != i + 1)
        return 0;
    const uint8_t x = (uint8_t)a[3];
    g->gone[i] = g->gone[i + 1] = g->gone[i + 2] = 1;
    *m = (gdi_micro){.two = t->two[a[1] == GD_FLOAT64][GDI_TWO_SIGMOIDS], .to = (uint8_t)a[2], .also = (uint8_t)b[2], .from = {x, x, x, x, x}};
    return 1;
}

int gdi_find_two(gdi_group *g, const gdi_table *t, int i, gdi_micro *m)
{
    const int64_t *a = line_at(g, i), *b = a + GDI_FUSED_LINE;
    if (i + 1 >= g->lines || g->gone[i] || g->gone[i + 1] || (a[1] != GD_FLOAT32 && a[1] != GD_FLOAT64))
        return 0;
    if (find_sigmoids(g, t, i, m))
        return 1;
    if (a[1] != b[1] || a[4] >= 0 || b[4] >= 0 || a[3] != b[3] || a[2] == a[3] || a[2] == b[2])
        return 0;
    for (int k = 0; k < (int)(sizeof twos / sizeof *twos); k++) {
        const int turned = a[0] == twos[k].second;
        if (a[0] != (turned ? twos[k].second : twos[k].first) || b[0] != (turned ? twos[k].first : twos[k].second))
            continue;
        const uint8_t x = (uint8_t)a[3];
        g->gone[i] = g->gone[i + 1] = 1;
        *m = (gdi_micro){.two = t->two[a[1] == GD_FLOAT64][k], .to = (uint8_t)(turned ? b : a)[2], .also = (uint8_t)(turned ? a : b)[2],
                         .from = {x, x, x, x, x}};
        return 1;
    }
    return 0;
}

/* relu is done later than it stands, so that nothing may read what it makes before, nor write what it reads. */
int gdi_find_relu(gdi_group *g, const gdi_table *t, int root, gdi_micro *m)
{
    const int x = m->from[0];
    int i = root - 1;
    while (i >= 0 && !(line_at(g, i)[0] == GD_OP_RELU && line_at(g, i)[3] == x && line_at(g, i)[1] == g->dtype && !g->gone[i]))
        i--;
    if (i < 0)
        return 0;
    const int to = (int)line_at(g, i)[2];
    if (to == x || to == m->to || to == m->from[1] || to == m->from[2])
        return 0;
    for (int j = i + 1; j < root; j++)
        if (is_written(g, j, x) || is_written(g, j, to) || reads_of(line_at(g, j), to))
            return 0;
    g->gone[i] = 1;
    m->two = t->two[g->dtype == GD_FLOAT64][GDI_TWO_GATE];
    m->fn = NULL;
    m->also = m->to;
    m->to = (uint8_t)to;
    return 1;
}

/* A comparison that a choice alone reads: by the loop's own three, with its operands the other way round, or with what is chosen from. */
enum { EQUAL, LESS, LESS_EQUAL };
static const struct { int16_t op; uint8_t loop, turned, other; } comparisons[] = {
    {GD_OP_EQUAL, EQUAL, 0, 0}, {GD_OP_NOT_EQUAL, EQUAL, 0, 1}, {GD_OP_ISNAN, EQUAL, 0, 1}, {GD_OP_LESS, LESS, 0, 0},
    {GD_OP_GREATER, LESS, 1, 0}, {GD_OP_LESS_EQUAL, LESS_EQUAL, 0, 0}, {GD_OP_GREATER_EQUAL, LESS_EQUAL, 1, 0},
};

int gdi_find_choice(gdi_group *g, const gdi_table *t, int root, gdi_micro *m)
{
    const int64_t *b = line_at(g, root);
    const int j = b[0] == GD_OP_WHERE && (b[1] == GD_FLOAT32 || b[1] == GD_FLOAT64) ? maker(g, b[3], root) : -1;
    if (j < 0)
        return 0;
    const int64_t *a = line_at(g, j);
    int k = 0;
    while (k < (int)(sizeof comparisons / sizeof *comparisons) && comparisons[k].op != a[0])
        k++;
    if (k == (int)(sizeof comparisons / sizeof *comparisons) || dtype_at(g, a[3], j) != b[1])
        return 0;
    const int64_t y = a[4] < 0 ? a[3] : a[4];
    const int turned = comparisons[k].turned, other = comparisons[k].other;
    const found f = {.value = {(int16_t)(turned ? y : a[3]), (int16_t)(turned ? a[3] : y), (int16_t)b[4 + other], (int16_t)b[5 - other]},
                     .at = {(int16_t)j, (int16_t)j, (int16_t)root, (int16_t)root}, .line = {(int16_t)root, (int16_t)j}, .lines = 2};
    if (is_late(g, &f, 0, root) || is_late(g, &f, 1, root))
        return 0;
    int single[2];                                       /* of the two compared, of the two chosen from: 1 the first, 2 the second */
    for (int i = 0; i < 2; i++)
        single[i] = a[4] < 0 && i == 0 ? 0 : is_single(g, f.value[2 * i]) ? 1 : is_single(g, f.value[2 * i + 1]) ? 2 : 0;
    g->gone[j] = g->gone[root] = 1;
    *m = (gdi_micro){.fn = t->choice[b[1] == GD_FLOAT64][comparisons[k].loop][single[0]][single[1]], .to = (uint8_t)b[2], .reads = 4};
    for (int v = 0; v < GDI_LOOP_VALUES; v++)
        m->from[v] = (uint8_t)f.value[v < 4 ? v : 0];
    m->singles = (uint8_t)(single[0] | single[1] << 2);  /* 1, 2: bits of their places */
    return 1;
}
