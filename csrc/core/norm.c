/* norm.c: finds the row programs that normalise rows (norm.h). The lines are read in order, as a grammar; which numbers values have
 * is of no account, nor is which of two factors comes first. */
#include "gdi.h"
#include "norm.h"

typedef struct reader {
    const int64_t *line;
    int at, lines, n_out, n;
    int64_t bound[GDI_NORM_VALUES];          /* the number of the value, -1: none yet, or something else is there now */
} reader;

/* A section begins: of rows, or of one value a row. */
static int section(reader *m, int stats)
{
    const int64_t *l = m->line + (int64_t)m->at * GDI_FUSED_LINE;
    const int is = m->at < m->lines && l[0] == -1 && (l[1] & 1) == stats;
    m->at += is;
    for (int k = GDI_NORM_OPERANDS; k < GDI_NORM_VALUES; k++)            /* registers do not last */
        if (m->bound[k] < m->n + GDI_FUSED_REGISTERS)
            m->bound[k] = -1;
    return is;
}

/* The number that value `of` has, or (an input of which nothing is known yet) could have. */
static int is_value(const reader *m, int of, int64_t number)
{
    if (of < GDI_NORM_INPUTS && m->bound[of] < 0)
        return number >= m->n_out && number < m->n;
    return number >= 0 && m->bound[of] == number;
}

/* Is the next line to = op(x, y)? Then on to the one after. y below 0: op has one operand. */
static int one(reader *m, int64_t op, int to, int x, int y)
{
    const int64_t *l = m->line + (int64_t)m->at * GDI_FUSED_LINE;
    if (m->at >= m->lines || l[0] != op || l[1] != m->line[GDI_FUSED_LINE + 1] || !is_value(m, x, l[3]) || (y >= 0 && !is_value(m, y, l[4])))
        return 0;
    m->bound[x] = l[3];
    if (y >= 0)
        m->bound[y] = l[4];
    for (int k = GDI_NORM_OPERANDS; k < GDI_NORM_VALUES; k++)
        if (m->bound[k] == l[2])
            m->bound[k] = -1;
    m->bound[to] = l[2];
    m->at++;
    return 1;
}

static int two(reader *m, int64_t op, int to, int x, int y) { return one(m, op, to, x, y) || one(m, op, to, y, x); }

static int is_square(reader *m, int to, int x) { return one(m, GD_OP_SQUARE, to, x, -1) || one(m, GD_OP_MULTIPLY, to, x, x); }

static int sum(reader *m, int to, int x, int column)
{
    return m->at < m->lines && (m->line[(int64_t)m->at * GDI_FUSED_LINE + 4] == 1) == column && one(m, GD_OP_SUM, to, x, -1);
}

static int mean(reader *m, int to, int from) { return one(m, GD_OP_DIVIDE, to, from, GDI_NORM_COUNT); }

static int centre(reader *m, int fixed)
{
    return one(m, GD_OP_SUBTRACT, GDI_NORM_CENTRED, GDI_NORM_X, GDI_NORM_MEAN)
        && (!fixed || one(m, GD_OP_SUBTRACT, GDI_NORM_CENTRED, GDI_NORM_CENTRED, GDI_NORM_FIX));
}

static int scaled(reader *m) { return one(m, GD_OP_ZMUL, GDI_NORM_SCALED, GDI_NORM_G, GDI_NORM_GAMMA); }

/* From the sum of squares to the beginning of the section that uses the root. */
static int root(reader *m, int *divide)
{
    if (!section(m, 1) || !mean(m, GDI_NORM_SQUARES, GDI_NORM_SQUARES) || !two(m, GD_OP_ADD, GDI_NORM_SQUARES, GDI_NORM_SQUARES, GDI_NORM_EPS)
        || !one(m, GD_OP_SQRT, GDI_NORM_ROOT, GDI_NORM_SQUARES, -1))
        return 0;
    *divide = !one(m, GD_OP_RECIPROCAL, GDI_NORM_ROOT, GDI_NORM_ROOT, -1);
    return section(m, 0);
}

/* Sections of the mean's correction and the squares, from the line after the mean's. */
static int moments(reader *m, int32_t *how_many, int *divide)
{
    int fixed = 0;
    if (!section(m, 0) || !centre(m, 0))
        return 0;
    if (sum(m, GDI_NORM_SUM, GDI_NORM_CENTRED, 0)) {
        fixed = 1;
        if (!section(m, 1) || !mean(m, GDI_NORM_FIX, GDI_NORM_SUM) || !section(m, 0) || !centre(m, 1))
            return 0;
    }
    *how_many = 1 + fixed;
    return is_square(m, GDI_NORM_ANY, GDI_NORM_CENTRED) && sum(m, GDI_NORM_SQUARES, GDI_NORM_ANY, 0) && root(m, divide);
}

static int forward(reader *m, gdi_norm_found *f)
{
    int divide = 0, x = GDI_NORM_CENTRED;
    if (!section(m, 0))
        return 0;
    if (sum(m, GDI_NORM_SUM, GDI_NORM_X, 0)) {
        if (!section(m, 1) || !mean(m, GDI_NORM_MEAN, GDI_NORM_SUM) || !moments(m, &f->moments, &divide))
            return 0;
        if (m->bound[x] < 0)                             /* a register of the section before, made again */
            (void)centre(m, f->moments == 2);
    } else {
        x = GDI_NORM_X;
        if (!is_square(m, GDI_NORM_ANY, x) || !sum(m, GDI_NORM_SQUARES, GDI_NORM_ANY, 0) || !root(m, &divide))
            return 0;
    }
    f->divide = divide;
    if (!(divide ? one(m, GD_OP_DIVIDE, GDI_NORM_Y, x, GDI_NORM_ROOT) : two(m, GD_OP_MULTIPLY, GDI_NORM_Y, x, GDI_NORM_ROOT)))
        return 0;
    (void)two(m, GD_OP_MULTIPLY, GDI_NORM_Y, GDI_NORM_Y, GDI_NORM_GAMMA);
    (void)two(m, GD_OP_ADD, GDI_NORM_Y, GDI_NORM_Y, GDI_NORM_BETA);
    return m->n_out == 1;
}

/* With y = gamma x + beta or without it; x is what gamma is applied to. columns: gamma is an element's, not a row's, and the sums of g and
 * of its products go down the columns. Rows that are long make again what short ones keep. */
static int back(reader *m, gdi_norm_found *f, int columns)
{
    enum { X = GDI_NORM_CENTRED, ANY = GDI_NORM_ANY, SCALED = GDI_NORM_SCALED };
    int divide = 0;
    if (!section(m, 0) || !sum(m, GDI_NORM_SUM, GDI_NORM_X, 0) || (!sum(m, GDI_NORM_SUM_G, GDI_NORM_G, columns) && columns)
        || !scaled(m) || !sum(m, GDI_NORM_G_MEAN, SCALED, 0))
        return 0;
    if (!columns && m->bound[GDI_NORM_SUM_G] < 0)
        (void)sum(m, GDI_NORM_SUM_G, GDI_NORM_G, 0);
    if (!section(m, 1) || !mean(m, GDI_NORM_MEAN, GDI_NORM_SUM) || !mean(m, GDI_NORM_G_MEAN, GDI_NORM_G_MEAN) || !moments(m, &f->moments, &divide))
        return 0;
    if (m->bound[X] < 0)
        (void)centre(m, 1);
    if (f->moments != 2 || divide || !two(m, GD_OP_MULTIPLY, X, X, GDI_NORM_ROOT))
        return 0;
    f->back = 1;
    if (two(m, GD_OP_MULTIPLY, ANY, X, GDI_NORM_GAMMA) && !two(m, GD_OP_ADD, GDI_NORM_Y, ANY, GDI_NORM_BETA))
        return 0;
    if (m->bound[SCALED] < 0)
        (void)scaled(m);
    if (!one(m, GD_OP_ZMUL, ANY, GDI_NORM_G, X) || !sum(m, GDI_NORM_SUM_GX, ANY, columns) || !one(m, GD_OP_ZMUL, ANY, SCALED, X)
        || !sum(m, GDI_NORM_GX_MEAN, ANY, 0) || !section(m, 1) || !mean(m, GDI_NORM_GX_MEAN, GDI_NORM_GX_MEAN) || !section(m, 0))
        return 0;
    if (m->bound[X] < 0 && (!centre(m, 1) || !two(m, GD_OP_MULTIPLY, X, X, GDI_NORM_ROOT)))
        return 0;
    if (m->bound[SCALED] < 0)
        (void)scaled(m);
    return one(m, GD_OP_ZMUL, ANY, GDI_NORM_GX_MEAN, X) && one(m, GD_OP_SUBTRACT, ANY, SCALED, ANY)
        && one(m, GD_OP_SUBTRACT, ANY, ANY, GDI_NORM_G_MEAN) && one(m, GD_OP_ZMUL, GDI_NORM_DX, ANY, GDI_NORM_ROOT);
}

/* Every output is one of them, once, and they are nothing else. */
static int all_outputs(const reader *m)
{
    int64_t seen = 0;
    for (int k = GDI_NORM_INPUTS; k < GDI_NORM_OPERANDS; k++) {
        if (m->bound[k] >= m->n_out)
            return 0;
        if (m->bound[k] >= 0)
            seen |= (int64_t)1 << m->bound[k];
    }
    return seen == ((int64_t)1 << m->n_out) - 1;
}

int gdi_norm_find(const int64_t *line, int lines, int n_out, int n, gdi_norm_found *found)
{
    for (int k = 0; k < 3; k++) {
        reader m = {.line = line, .lines = lines, .n_out = n_out, .n = n};
        for (int i = 0; i < GDI_NORM_VALUES; i++)
            m.bound[i] = -1;
        *found = (gdi_norm_found){.back = 0};
        if (lines > 2 && (k ? back(&m, found, k == 1) : forward(&m, found)) && m.at == lines && all_outputs(&m)) {
            for (int i = 0; i < GDI_NORM_OPERANDS; i++)
                found->operand[i] = (int32_t)m.bound[i];
            return 1;
        }
    }
    return 0;
}
