/* test_fused.c: fused groups of random lines and sums over random layouts, threads and budgets, against the same lines as
 * instructions of their own, bit by bit; and damaged lines, which are refused or run. Prints "N passed, N failed". */
#include "layouts.h"
#include <math.h>

enum { INPUTS = 4, LINES = 14, SUMS = 3, ALL = INPUTS + LINES };

typedef struct group {
    int ndim, n_in, n_out, n_line;
    int64_t shape[8], n;
    int dtype[ALL];                      /* of the inputs, then of the results of the lines */
    int op[LINES], from[LINES][3];       /* operands: inputs and earlier results, in that numbering */
    int out[LINES];                      /* number of the output that line i writes, -1: a register */
    layout in_layout[INPUTS], out_layout[LINES];
    int n_sum, gone, sum_from[SUMS];     /* values that are summed along the last axes */
} group;

static const int dtypes[] = {GD_FLOAT64, GD_FLOAT32, GD_INT32, GD_BOOL, GD_INT64, GD_UINT8};
static int any_dtype(void) { return dtypes[below(6)]; }

/* A value of dtype made before line i, a cast away if there is none. */
static int find(const group *g, int i, int dtype)
{
    int start = (int)below(g->n_in + i);
    for (int k = 0; k < g->n_in + i; k++) {
        int v = (start + k) % (g->n_in + i);
        if (g->dtype[v] == dtype)
            return v;
    }
    return -1;
}

static void random_line(group *g, int i)
{
    for (;;) {
        static const int cheap[] = {GD_OP_ADD, GD_OP_SUBTRACT, GD_OP_MULTIPLY, GD_OP_ZMUL};
        int op = below(8) == 0 ? GD_OP_CAST : below(2) ? cheap[below(4)] : (int)below(GD_MAP_COUNT), first = (int)below(g->n_in + i);
        if (i > 0 && below(2))
            first = g->n_in + i - 1;         /* the last result: a chain */
        int dtype = g->dtype[first], arity = op == GD_OP_CAST ? 1 : gdi_map_arity(op), ok = 1;
        if (op == GD_OP_COPYSIGN || op == GD_OP_SIGNBIT || (op != GD_OP_CAST && !gd_op_accepts(op, dtype)))
            continue;                        /* nobody promises the sign of a NaN */
        for (int k = 0; k < 3; k++) {
            g->from[i][k] = k >= arity ? -1 : op == GD_OP_WHERE && k == 0 ? find(g, i, GD_BOOL)
                          : k == 0 ? first : find(g, i, dtype);
            ok = ok && (k >= arity || g->from[i][k] >= 0);
        }
        if (!ok)
            continue;
        const int result = any_dtype();
        if (op == GD_OP_CAST && result == dtype)
            continue;
        g->op[i] = op;
        g->dtype[g->n_in + i] = op == GD_OP_CAST ? result : gdi_map_is_test(op) ? GD_BOOL : dtype;
        return;
    }
}

/* Expressions that one loop does (core/loops.c), line by line: operands are one of two single inputs, any value, or the result of
 * an earlier line of the expression. */
enum { SINGLE = 100, ANY = 102, LINE = 200, LONGEST = 5 };
static const int expressions[][LONGEST][3] = {
    {{GD_OP_MULTIPLY, SINGLE, ANY}, {GD_OP_MULTIPLY, SINGLE + 1, ANY}, {GD_OP_ADD, LINE, LINE + 1}},
    {{GD_OP_MULTIPLY, SINGLE, ANY}, {GD_OP_SQUARE, ANY}, {GD_OP_MULTIPLY, SINGLE + 1, LINE + 1}, {GD_OP_ADD, LINE, LINE + 2}},
    {{GD_OP_MULTIPLY, SINGLE, ANY}, {GD_OP_SQRT, ANY}, {GD_OP_ADD, LINE + 1, SINGLE + 1}, {GD_OP_DIVIDE, LINE, LINE + 2}, {GD_OP_SUBTRACT, ANY, LINE + 3}},
};
static const int lengths[] = {3, 4, 5};

/* All lines of a group: expressions with other lines in between. Inputs 0 and 1 are single. */
static void expression_lines(group *g)
{
    int which = (int)below(3), done = 0, made[LONGEST];
    for (int i = 0; i < g->n_line; i++) {
        if (below(3) == 0) {
            random_line(g, i);
            continue;
        }
        const int *text = expressions[which][done];
        const int turned = (text[0] == GD_OP_ADD || text[0] == GD_OP_MULTIPLY) && below(2);
        const int arity = gdi_map_arity(text[0]), newest = i > 0 && g->dtype[g->n_in + i - 1] == g->dtype[0] && below(2);
        for (int k = 0; k < 3; k++) {
            const int of = k < arity ? text[1 + (turned ? 1 - k : k)] : 0;
            g->from[i][k] = k >= arity ? -1 : of >= LINE ? made[of - LINE] : of != ANY ? of - SINGLE
                          : newest ? g->n_in + i - 1 : find(g, i, g->dtype[0]);
        }
        g->op[i] = text[0];
        g->dtype[g->n_in + i] = g->dtype[0];
        made[done++] = g->n_in + i;
        if (done == lengths[which]) {
            which = (int)below(3);
            done = 0;
        }
    }
}

/* The layout of an operand of sums: the axes that stay and those that go are each packed, or all of stride 0; or, of a sum of
 * everything, turned. */
static layout summed_layout(const group *g)
{
    layout l = {.extent = 1};
    int64_t step = 1;
    if (g->ndim == 2 && g->gone == 2 && g->shape[0] > 1 && g->shape[1] >= GDI_FLOW_SHORTEST && g->shape[1] <= GDI_FLOW_LONGEST && below(3) == 0) {
        l.stride[0] = 1;
        l.stride[1] = g->shape[0] + below(3);
        l.extent = l.stride[1] * g->shape[1];
        return l;
    }
    const int kept = below(4) != 0, gone = below(4) != 0;
    for (int d = g->ndim - 1; d >= 0; d--) {
        if (d < g->ndim - g->gone ? kept : gone) {
            l.stride[d] = step;
            step *= g->shape[d] > 0 ? g->shape[d] : 1;
        }
    }
    l.extent = step;
    return l;
}

/* Sums of some float values, where the layouts allow it. */
static void random_sums(group *g)
{
    int64_t total = 1;
    g->gone = g->ndim > 0 ? 1 + (int)below(g->ndim) : 0;
    for (int d = g->ndim - g->gone; d < g->ndim; d++)
        total *= g->shape[d];
    if (total < 2 || g->n == 0 || below(2))
        return;
    for (int i = 0; i < SUMS; i++) {
        int v = (int)below(g->n_in + g->n_line);
        if (g->dtype[v] == GD_FLOAT32 || g->dtype[v] == GD_FLOAT64)
            g->sum_from[g->n_sum++] = v;
    }
    for (int k = 0; k < g->n_in && g->n_sum > 0; k++)
        g->in_layout[k] = summed_layout(g);
    for (int i = 0; i < g->n_line && g->n_sum > 0; i++)
        g->out_layout[i] = random_layout(g->ndim, g->shape, 1, 1);
}

static group random_group(void)
{
    group g = {.ndim = (int)below(5), .n_in = 1 + (int)below(INPUTS), .n_line = 1 + (int)below(LINES), .n = 1};
    int plain = below(3) == 0;
    for (int d = 0; d < g.ndim; d++) {
        g.shape[d] = below(6) == 0 ? below(1500) : below(7) + (below(20) != 0);
        if (g.n * (g.shape[d] > 0 ? g.shape[d] : 1) > 20000)
            g.shape[d] = 2;
        g.n *= g.shape[d];
    }
    for (int k = 0; k < g.n_in; k++) {
        g.dtype[k] = any_dtype();
        g.in_layout[k] = random_layout(g.ndim, g.shape, 0, plain && below(2));
    }
    const int planted = g.n_in > 2 && below(2) == 0;
    if (planted) {
        g.n_line = LINES;
        g.dtype[0] = g.dtype[1] = g.dtype[2] = below(2) ? GD_FLOAT32 : GD_FLOAT64;
        for (int k = 0; k < 2; k++)
            g.in_layout[k] = (layout){.extent = 1};
        expression_lines(&g);
    }
    for (int i = 0; i < g.n_line; i++) {
        if (!planted)
            random_line(&g, i);
        g.out[i] = i == g.n_line - 1 || below(planted ? 12 : 4) == 0 ? g.n_out++ : -1;
        g.out_layout[i] = random_layout(g.ndim, g.shape, 1, plain || below(2));
    }
    random_sums(&g);
    return g;
}

/* Offsets in base 4 of the outputs, one after the other, then of the sums; the inputs likewise in base 2. */
static int64_t places(const group *g, int64_t *in_at, int64_t *out_at)
{
    int64_t at = 0;
    for (int k = 0; k < g->n_in; k++, at = (at + 63) / 64 * 64) {
        in_at[k] = at + g->in_layout[k].offset * gd_dtype_nbytes(g->dtype[k]);
        at += g->in_layout[k].extent * gd_dtype_nbytes(g->dtype[k]);
    }
    int64_t inputs = at;
    at = 0;
    for (int i = 0; i < g->n_line; i++)
        if (g->out[i] >= 0) {
            out_at[i] = at + g->out_layout[i].offset * gd_dtype_nbytes(g->dtype[g->n_in + i]);
            at += (g->out_layout[i].extent * gd_dtype_nbytes(g->dtype[g->n_in + i]) + 63) / 64 * 64;
        }
    for (int i = 0; i < g->n_sum; i++, at += g->n * 8)
        out_at[LINES + i] = at;
    return inputs > at ? inputs : at;
}

static int sum_view(builder *b, const group *g, const int64_t *out_at, int i)
{
    int64_t stride[8], step = 1;
    for (int d = g->ndim - g->gone - 1; d >= 0; step *= g->shape[d--])
        stride[d] = step;
    return view(b, 4, g->dtype[g->sum_from[i]], out_at[LINES + i], g->ndim - g->gone, g->shape, stride);
}

static void input_views(builder *b, const group *g, const int64_t *in_at, int *value)
{
    for (int k = 0; k < g->n_in; k++)
        value[k] = view(b, 2, g->dtype[k], in_at[k], g->ndim, g->shape, g->in_layout[k].stride);
}

static int output_view(builder *b, const group *g, const int64_t *out_at, int i)
{
    return view(b, 4, g->dtype[g->n_in + i], out_at[i], g->ndim, g->shape, g->out_layout[i].stride);
}

/* Every line an instruction; results that are no output lie packed in the arena. */
static void emit_lines(builder *b, const group *g, const int64_t *in_at, const int64_t *out_at)
{
    int value[ALL];
    int64_t packed[8], step = 1;
    for (int d = g->ndim - 1; d >= 0; step *= g->shape[d--])
        packed[d] = step;
    input_views(b, g, in_at, value);
    for (int i = 0; i < g->n_line; i++) {
        int args[4], n_in = 0;
        value[g->n_in + i] = g->out[i] >= 0 ? output_view(b, g, out_at, i)
                           : view(b, 0, g->dtype[g->n_in + i], i * (g->n * 8 + 64) / 8 * 8, g->ndim, g->shape, packed);
        args[0] = value[g->n_in + i];
        for (int k = 0; k < 3 && g->from[i][k] >= 0; k++)
            args[++n_in] = value[g->from[i][k]];
        emit(b, g->op[i], n_in, args);
    }
    for (int i = 0; i < g->n_sum; i++) {
        EMIT(b, GD_OP_SUM, sum_view(b, g, out_at, i), value[g->sum_from[i]]);
        attrs(b, 1, (int64_t[]){g->gone});
    }
}

static void add_sum(int64_t *line, const group *g, int k, const int *number)
{
    const int64_t values[] = {GD_OP_SUM, g->dtype[g->sum_from[k]], g->n_out + k, number[g->sum_from[k]], g->gone, -1};
    memcpy(line, values, sizeof values);
}

/* The lines as one instruction. Registers are taken anew by every line, or where possible over a dying operand. */
static void emit_group(builder *b, const group *g, const int64_t *in_at, const int64_t *out_at)
{
    int args[ALL + SUMS], number[ALL], last[ALL] = {0}, used = 0, spare[LINES], n_spare = 0, n_lines = 0;
    int64_t lines[(LINES + SUMS) * GDI_FUSED_LINE];
    const int n_out = g->n_out + g->n_sum, n = n_out + g->n_in, early_sums = below(2) == 0;
    for (int i = 0; i < g->n_line; i++)
        if (g->out[i] >= 0)
            args[g->out[i]] = output_view(b, g, out_at, i);
    for (int i = 0; i < g->n_sum; i++)
        args[g->n_out + i] = sum_view(b, g, out_at, i);
    input_views(b, g, in_at, args + n_out);
    for (int k = 0; k < g->n_in; k++)
        number[k] = n_out + k;
    for (int i = 0; i < g->n_line; i++)
        for (int k = 0; k < 3 && g->from[i][k] >= 0; k++)
            last[g->from[i][k]] = i;
    for (int i = 0; i < g->n_sum && !early_sums; i++)
        last[g->sum_from[i]] = LINES;
    for (int i = 0; i < g->n_line; i++) {
        int64_t *line = lines + n_lines++ * GDI_FUSED_LINE;
        int to = g->out[i], early = below(2) == 0, me = g->n_in + i, size = gd_dtype_nbytes(g->dtype[me]);
        for (int pass = 0; pass < 2; pass++) {
            for (int k = 0; k < 3 && g->from[i][k] >= 0 && pass != early; k++) {
                int v = g->from[i][k], same = gd_dtype_nbytes(g->dtype[v]) == size, again = k > 0 && (v == g->from[i][0] || v == g->from[i][1]);
                if (v >= g->n_in && last[v] == i && number[v] >= n && !again && (pass == 1 || same))
                    spare[n_spare++] = number[v];
                else if (v >= g->n_in && last[v] == i && number[v] >= n && !again)
                    last[v] = -1;                        /* of another size: never used again */
            }
            if (pass == 0 && to < 0)
                to = n_spare > 0 ? spare[--n_spare] : n + used++;
        }
        number[me] = to;
        line[0] = g->op[i];
        line[1] = g->dtype[me];
        line[2] = to;
        for (int k = 0; k < 3; k++)
            line[3 + k] = g->from[i][k] < 0 ? -1 : number[g->from[i][k]];
        for (int k = 0; k < g->n_sum && early_sums; k++)     /* at once: the register may be used again */
            if (g->sum_from[k] == me || (g->sum_from[k] < g->n_in && i == 0))
                add_sum(lines + n_lines++ * GDI_FUSED_LINE, g, k, number);
    }
    for (int k = 0; k < g->n_sum && !early_sums; k++)
        add_sum(lines + n_lines++ * GDI_FUSED_LINE, g, k, number);
    b->instr[b->s.n_instr++] = (gd_instr){GD_OP_FUSED, n_out, g->n_in, (int32_t)b->s.n_arg, 0, 0};
    for (int k = 0; k < n; k++)
        b->arg[b->s.n_arg++] = args[k];
    b->s.commit = b->s.n_instr;
    attrs(b, n_lines * GDI_FUSED_LINE, lines);
}

static void fill_inputs(const group *g, char *memory, int64_t nbytes)
{
    static const double odd[] = {0, -0.0, 1, -1, 0.5, 3.25, -7, 1e30, -1e-30, INFINITY, NAN, 2, 100};
    for (int64_t i = 0; i < nbytes / 8; i++)
        ((double *)(void *)memory)[i] = odd[below(13)];
    int64_t in_at[INPUTS], out_at[LINES + SUMS];
    places(g, in_at, out_at);
    for (int k = 0; k < g->n_in; k++) {
        char *p = memory + in_at[k] - g->in_layout[k].offset * gd_dtype_nbytes(g->dtype[k]);
        for (int64_t i = 0; i < g->in_layout[k].extent; i++)
            switch (g->dtype[k]) {
            case GD_FLOAT64: ((double *)(void *)p)[i] = odd[below(13)]; break;
            case GD_FLOAT32: ((float *)(void *)p)[i] = (float)odd[below(13)]; break;
            case GD_INT32: ((int32_t *)(void *)p)[i] = (int32_t)below(200) - 100; break;
            case GD_INT64: ((int64_t *)(void *)p)[i] = below(2000) - 1000; break;
            default: ((uint8_t *)p)[i] = (uint8_t)below(g->dtype[k] == GD_BOOL ? 2 : 200);
            }
    }
}

/* NaNs of the two runs come from the same kernels, but which operand of x + y a NaN is taken from may depend on how a loop
 * is entered, so bits are compared, and where they differ both must be NaN. */
static int equal(const group *g, const char *a, const char *b, const int64_t *out_at)
{
    for (int i = 0; i < g->n_line; i++)
        for (int64_t j = 0; g->out[i] >= 0 && j < g->n; j++) {
            int dtype = g->dtype[g->n_in + i];
            int64_t size = gd_dtype_nbytes(dtype), at = position(&g->out_layout[i], g->ndim, g->shape, j) - g->out_layout[i].offset;
            const char *x = a + out_at[i] + at * size, *y = b + out_at[i] + at * size;
            if (memcmp(x, y, (size_t)size) == 0)
                continue;
            double u = NAN, v = NAN;
            if (dtype == GD_FLOAT64)
                memcpy(&u, x, 8), memcpy(&v, y, 8);
            else if (dtype == GD_FLOAT32)
                u = *(const float *)(const void *)x, v = *(const float *)(const void *)y;
            else
                return 0;
            if (u == u || v == v)
                return 0;
        }
    int64_t kept = 1;
    for (int d = 0; d < g->ndim - g->gone; d++)
        kept *= g->shape[d];
    for (int i = 0; i < g->n_sum; i++)
        for (int64_t j = 0; j < kept; j++) {
            const char *x = a + out_at[LINES + i], *y = b + out_at[LINES + i];
            const int wide = g->dtype[g->sum_from[i]] == GD_FLOAT64;
            double u = wide ? ((const double *)(const void *)x)[j] : (double)((const float *)(const void *)x)[j];
            double v = wide ? ((const double *)(const void *)y)[j] : (double)((const float *)(const void *)y)[j];
            if (memcmp(&u, &v, sizeof u) != 0 && (u == u || v == v))
                return 0;
        }
    return 1;
}

static int one_group(void)
{
    group g = random_group();
    int64_t in_at[INPUTS], out_at[LINES + SUMS], room = places(&g, in_at, out_at);
    builder *plain = new_builder(LINES * (g.n * 8 + 64)), *fused = new_builder(0);
    char *input = calloc(1, (size_t)room + 64), *one = calloc(1, (size_t)room + 64), *two = calloc(1, (size_t)room + 64);
    gd_fault f;
    fill_inputs(&g, input, room);
    plain->nbytes[2] = plain->nbytes[4] = fused->nbytes[2] = fused->nbytes[4] = room + 64;
    emit_lines(plain, &g, in_at, out_at);
    emit_group(fused, &g, in_at, out_at);
    int ok = run(plain, 1, 0, (void *[BASES]){NULL, NULL, input, NULL, one}, &f, NULL) == GD_OK;
    if (!ok)
        printf("plain: %s\n", gd_reason(f.what));
    int status = run(fused, below(3) ? 1 : 3, below(2), (void *[BASES]){NULL, NULL, input, NULL, two}, &f, NULL);
    if (status != GD_OK)
        printf("fused: %s, line %lld of %d\n", gd_reason(f.what), (long long)f.value, g.n_line);
    ok = ok && status == GD_OK && equal(&g, one, two, out_at);
    /* Nothing between the elements of the outputs was touched: what the plain run left at 0 is 0. */
    ok = ok && (g.ndim == 0 || memcmp(one + room, two + room, 64) == 0);
    free(input), free(one), free(two), free(plain), free(fused);
    return ok;
}

/* Any field of a group changed: refused, or run inside its operands (run this under the sanitizers). */
static int one_damage(int *ran)
{
    static const int64_t odd[] = {-1, 0, 1, 2, 5, 6, 17, 31, 32, 63, 64, 100, 255, GD_OP_CAST, GD_OP_FUSED, GD_OP_WHERE, INT32_MAX, INT64_MAX, INT64_MIN, (int64_t)1 << 32};
    group g = random_group();
    int64_t in_at[INPUTS], out_at[LINES + SUMS], room = places(&g, in_at, out_at);
    builder *b = new_builder(0);
    char *input = calloc(1, (size_t)room + 64), *output = calloc(1, (size_t)room + 64);
    gd_fault f;
    fill_inputs(&g, input, room);
    b->nbytes[2] = b->nbytes[4] = room + 64;
    emit_group(b, &g, in_at, out_at);
    gd_instr *in = &b->instr[0];
    for (int64_t j = below(3); j >= 0; j--)
        switch (below(12)) {
        case 0: in->n_attr = (int32_t)below(in->n_attr + 8); break;
        case 1: in->n_out = (int32_t)below(6); break;
        case 2: in->n_in = (int32_t)below(6); break;
        case 3: b->view[below(b->s.n_view)].dtype = (int32_t)below(GD_DTYPE_COUNT); break;
        case 4: b->view[below(b->s.n_view)].base = below(2) ? 4 : 2; break;
        default: {
            int64_t *field = &b->attr[below(b->s.n_attr)];
            *field = below(2) ? odd[below(20)] : (int64_t)((uint64_t)*field + (uint64_t)below(5) - 2);
        }
        }
    int status = run(b, 1, 0, (void *[BASES]){NULL, NULL, input, NULL, output}, &f, NULL);
    *ran += status == GD_OK;
    free(input), free(output), free(b);
    return status == GD_OK || (status == GD_BAD_PROGRAM && f.what > 0 && f.what < GDI_REASON_COUNT);
}

/* ---- the rules, one by one ---- */
/* out0 = x + y; register = out0 x; out1 = register < y */
static builder *good(void)
{
    builder *b = new_builder(1024);
    int args[] = {vector(b, 0, GD_FLOAT64, 0, 8), vector(b, 0, GD_BOOL, 64, 8), vector(b, 2, GD_FLOAT64, 0, 8), vector(b, 0, GD_FLOAT64, 128, 8)};
    b->nbytes[2] = 1024;
    emit(b, GD_OP_FUSED, 3, args);
    b->instr[0].n_out = 2, b->instr[0].n_in = 2;
    attrs(b, 18, (int64_t[]){GD_OP_ADD, GD_FLOAT64, 0, 2, 3, -1, GD_OP_MULTIPLY, GD_FLOAT64, 4, 0, 2, -1, GD_OP_LESS, GD_BOOL, 1, 4, 3, -1});
    return b;
}

static int refused(builder *b, int what)
{
    gd_fault f;
    double x[128] = {0};
    int status = run(b, 1, 0, (void *[BASES]){NULL, NULL, x, x, x}, &f, NULL), ok = status == GD_BAD_PROGRAM && f.what == what;
    if (!ok)
        printf("status %d what %d (%s), wanted %s\n", status, f.what, gd_reason(f.what), gd_reason(what));
    return ok;
}
#define REFUSED(what, change) do { builder *b = good(); change; CHECK(refused(b, GDI_REASON_##what)); free(b); } while (0)

static void test_rules(void)
{
    builder *fine = good();
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    gd_fault f;
    CHECK(run(fine, 1, 0, (void *[BASES]){NULL, NULL, x, x, x}, &f, NULL) == GD_OK);
    free(fine);
    REFUSED(OP, b->attr[0] = GD_OP_MATMUL);
    REFUSED(OP, b->attr[0] = GD_OP_FUSED);
    REFUSED(OP, b->attr[0] = -1);
    REFUSED(OP, b->attr[0] = ((int64_t)1 << 32) + GD_OP_ADD);
    REFUSED(DTYPE, b->attr[1] = GD_FLOAT32);
    REFUSED(DTYPE, b->attr[1] = GD_FLOAT16);
    REFUSED(DTYPE, b->attr[1] = GD_DTYPE_COUNT);
    REFUSED(DTYPE, b->attr[13] = GD_FLOAT64);
    REFUSED(DTYPE, b->view[1].dtype = GD_UINT8);
    REFUSED(DTYPE, (b->view[3].dtype = GD_INT64));
    REFUSED(DTYPE, (b->view[2].dtype = GD_FLOAT16));
    REFUSED(KERNEL, (b->attr[0] = GD_OP_DIVIDE, b->attr[1] = GD_INT64, b->view[0].dtype = b->view[2].dtype = b->view[3].dtype = GD_INT64));
    REFUSED(MICRO, b->attr[2] = 2);                      /* an input as a result */
    REFUSED(MICRO, b->attr[2] = 4 + GDI_FUSED_REGISTERS);
    REFUSED(MICRO, b->attr[2] = -1);
    REFUSED(MICRO, b->attr[8] = 0);                      /* an output twice */
    REFUSED(MICRO, b->attr[2] = 5);                      /* output 0 is read and never written */
    REFUSED(MICRO, (b->attr[2] = 5, b->attr[9] = 5));    /* never written */
    REFUSED(MICRO, b->attr[9] = 4);                      /* a register nobody wrote */
    REFUSED(MICRO, b->attr[3] = 1);                      /* an output nobody wrote yet */
    REFUSED(MICRO, b->attr[3] = -1);
    REFUSED(MICRO, b->attr[5] = 2);                      /* a third operand */
    REFUSED(MICRO, b->attr[4] = 4 + GDI_FUSED_REGISTERS);
    REFUSED(SHAPE, b->dim[2] = 7);
    REFUSED(SHAPE, b->dim[4] = 7);
    REFUSED(ATTRS, b->instr[0].n_attr = 17);
    REFUSED(ATTRS, b->instr[0].n_attr = 0);
    REFUSED(ATTRS, b->instr[0].n_attr = -6);
    REFUSED(ARITY, b->instr[0].n_out = 0);
    /* output 1 as a sum: x + y and the sum of 8 elements */
#define AS_SUM(change) (b->view[1] = b->view[0], b->view[1].ndim = 0, b->view[1].offset = 64, b->attr[12] = GD_OP_SUM, \
                        b->attr[13] = GD_FLOAT64, b->attr[16] = 1, change)
    fine = good();
    fine->view[1] = fine->view[0], fine->view[1].ndim = 0, fine->view[1].offset = 64;
    fine->attr[12] = GD_OP_SUM, fine->attr[13] = GD_FLOAT64, fine->attr[16] = 1, fine->attr[17] = -1;
    CHECK(run(fine, 1, 0, (void *[BASES]){NULL, NULL, x, x, x}, &f, NULL) == GD_OK);
    free(fine);
    REFUSED(MICRO, AS_SUM(b->attr[16] = 2));
    REFUSED(MICRO, AS_SUM(b->attr[16] = 0));
    REFUSED(MICRO, AS_SUM(b->attr[17] = 2));
    REFUSED(SHAPE, AS_SUM(b->attr[14] = 4));             /* into a register */
    REFUSED(MICRO, AS_SUM(b->attr[15] = 1));             /* of itself */
    REFUSED(DTYPE, AS_SUM(b->attr[13] = GD_FLOAT32));
    REFUSED(SHAPE, AS_SUM(b->view[1].ndim = 1));
    REFUSED(CALL, AS_SUM((b->dim[0] = b->dim[4] = b->dim[6] = 0)));
    REFUSED(ARITY, b->instr[0].n_in = GDI_FUSED_OPERANDS - 1);
    REFUSED(ARGS, b->instr[0].n_in = 3);
    REFUSED(READ_ONLY, b->view[1].base = 2);
    REFUSED(OVERLAP, b->view[1].offset = 60);            /* two outputs */
    REFUSED(OVERLAP, b->dim[3] = 0);
    REFUSED(ALIAS, b->view[3].offset = 8);               /* shifted */
    REFUSED(ALIAS, b->view[3].offset = 0);               /* output 0 over y, which line 2 still reads */
    REFUSED(ALIAS, (b->view[3].offset = 0, b->attr[10] = 3, b->attr[16] = 2));     /* which the very next line reads */
    fine = good();
    fine->view[3].offset = 0;                               /* fine when nobody reads y afterwards */
    fine->attr[16] = 2;
    CHECK(run(fine, 1, 0, (void *[BASES]){NULL, NULL, x, x, x}, &f, NULL) == GD_OK);
    free(fine);
}

int main(int argc, char **argv)
{
    const int rounds = getenv("GRAPHDIFF_LONG") ? 40000 : 3000;
    int ran = 0;
    if (choose_isa(argc, argv))
        return 2;
    test_rules();
    for (int i = 0; i < rounds; i++) {
        CHECK(one_group());
        CHECK(one_damage(&ran));
    }
    CHECK(ran > rounds / 20 && ran < rounds);
    CHECK(gd_alloc_live() == 0);
    return report();
}
