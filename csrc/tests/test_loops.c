/* test_loops.c: which lines of a group are one loop, and the step of an optimiser as such a loop, in any order of its lines, against plain C.
 * Prints "N passed, N failed". */
#include "layouts.h"
#include <math.h>

/* A step of Adam in place, in any order that its lines may have: outputs 0 to 2 (mean, squares, weights) lie over inputs 3 to 5;
 * then the gradient and six single values; registers. */
enum { MEAN = 3, SQUARES, WEIGHTS, GRADIENT, B1, C1, B2, C2, RATE, EPS = RATE + 1, STEP = 13, STEP_LINES = 12 };
static const int64_t step_lines[STEP_LINES][4] = {
    {GD_OP_MULTIPLY, STEP, B1, MEAN}, {GD_OP_MULTIPLY, STEP + 1, C1, GRADIENT}, {GD_OP_ADD, 0, STEP, STEP + 1},
    {GD_OP_MULTIPLY, STEP + 2, B2, SQUARES}, {GD_OP_SQUARE, STEP + 3, GRADIENT, -1}, {GD_OP_MULTIPLY, STEP + 4, C2, STEP + 3},
    {GD_OP_ADD, 1, STEP + 2, STEP + 4}, {GD_OP_MULTIPLY, STEP + 5, RATE, 0}, {GD_OP_SQRT, STEP + 6, 1, -1},
    {GD_OP_ADD, STEP + 7, STEP + 6, EPS}, {GD_OP_DIVIDE, STEP + 8, STEP + 5, STEP + 7}, {GD_OP_SUBTRACT, 2, WEIGHTS, STEP + 8}};

/* The lines in a random order in which every value is made before it is read. */
static void shuffle_step(int64_t dtype, int64_t *lines)
{
    int placed[STEP_LINES] = {0};
    for (int at = 0; at < STEP_LINES;) {
        const int i = (int)below(STEP_LINES);
        int ready = !placed[i];
        for (int k = 2; k < 4; k++)
            for (int j = 0; j < STEP_LINES; j++)
                ready = ready && (placed[j] || step_lines[j][1] != step_lines[i][k]);
        if (!ready)
            continue;
        placed[i] = 1;
        const int64_t *l = step_lines[i], line[] = {l[0], dtype, l[1], l[2], l[3], -1};
        memcpy(lines + GDI_FUSED_LINE * at++, line, sizeof line);
    }
}

#define ADAM(T, root) \
    for (int64_t i = 0; i < n; i++) { \
        volatile T a = B[0] * m[i], b = B[1] * g[i], c = B[2] * v[i], d = g[i] * g[i]; \
        volatile T e = B[3] * d, x = a + b, y = c + e, r = B[4] * x, s = root(y); \
        volatile T t = s + B[5], q = r / t; \
        m[i] = x, v[i] = y, w[i] = w[i] - q; \
    }
static void adam_f32(int64_t n, float *m, float *v, float *w, const float *g, const float *B) { ADAM(float, sqrtf) }
static void adam_f64(int64_t n, double *m, double *v, double *w, const double *g, const double *B) { ADAM(double, sqrt) }

static int one_step(void)
{
    const int dtype = below(2) ? GD_FLOAT32 : GD_FLOAT64, size = gd_dtype_nbytes(dtype);
    const int64_t n = 1 + below(below(2) ? 40 : 5000), room = (n * size + 127) / 64 * 64, whole = 5 * room;
    static const double values[] = {0.9, 0.1, 0.999, 0.001, 0.01, 1e-8};
    int64_t lines[STEP_LINES * GDI_FUSED_LINE];
    builder *b = new_builder(0);
    char *one = calloc(1, (size_t)whole), *two = calloc(1, (size_t)whole);
    int args[STEP];
    gd_fault f;
    for (int64_t i = 0; i < whole / size; i++) {
        const double x = below(50) ? (double)below(1000) / 100 - (i < n || i > 2 * room / size ? 5 : 0) : below(2) ? INFINITY : NAN;
        if (size == 4) ((float *)(void *)one)[i] = (float)x;
        else ((double *)(void *)one)[i] = x;
    }
    for (int k = 0; k < 6; k++) {
        if (size == 4) ((float *)(void *)(one + 4 * room))[k] = (float)values[k];
        else ((double *)(void *)(one + 4 * room))[k] = values[k];
    }
    memcpy(two, one, (size_t)whole);
    for (int k = 0; k < STEP; k++) {
        const int64_t stride = k <= GRADIENT, at = k < 3 ? k * room : k <= GRADIENT ? (k - MEAN) * room : 4 * room + (k - B1) * size;
        args[k] = view(b, 4, dtype, at, 1, &n, &stride);
    }
    shuffle_step(dtype, lines);
    emit(b, GD_OP_FUSED, STEP - 1, args);
    b->instr[0].n_out = 3, b->instr[0].n_in = STEP - 3;
    attrs(b, STEP_LINES * GDI_FUSED_LINE, lines);
    b->nbytes[4] = whole;
    const int status = run(b, 1, 0, (void *[BASES]){NULL, NULL, NULL, NULL, two}, &f, NULL);
    if (status != GD_OK)
        printf("step: %s, %lld\n", gd_reason(f.what), (long long)f.value);
    if (size == 4) adam_f32(n, (float *)(void *)one, (float *)(void *)(one + room), (float *)(void *)(one + 2 * room),
                            (float *)(void *)(one + 3 * room), (float *)(void *)(one + 4 * room));
    else adam_f64(n, (double *)(void *)one, (double *)(void *)(one + room), (double *)(void *)(one + 2 * room),
                  (double *)(void *)(one + 3 * room), (double *)(void *)(one + 4 * room));
    int ok = status == GD_OK;
    for (int64_t i = 0; i < 3 * room / size && ok; i++) {
        if (i * size % room >= n * size)
            continue;
        const double x = size == 4 ? (double)((float *)(void *)one)[i] : ((double *)(void *)one)[i];
        const double y = size == 4 ? (double)((float *)(void *)two)[i] : ((double *)(void *)two)[i];
        ok = memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
    }
    free(one), free(two), free(b);
    return ok;
}

/* In the order of the text, the step is three loops; one that would read a value too late is none. */
static void test_loops(void)
{
    int64_t lines[STEP_LINES * GDI_FUSED_LINE];
    for (int i = 0; i < STEP_LINES; i++)
        memcpy(lines + i * GDI_FUSED_LINE, (int64_t[]){step_lines[i][0], GD_FLOAT32, step_lines[i][1], step_lines[i][2], step_lines[i][3], -1},
               GDI_FUSED_LINE * sizeof(int64_t));
    gdi_group g = {.line = lines, .lines = STEP_LINES, .n = STEP, .n_out = 3};
    gdi_micro m;
    int found[STEP_LINES], gone = 0;
    for (int k = 0; k < STEP; k++) {
        g.place[k] = (gdi_place){64 * (k < 3 ? k : k - 3), 4};
        g.single[k] = k > GRADIENT;
    }
    for (int pass = 0; pass < 3; pass++) {
        memset(g.gone, 0, sizeof g.gone);
        gone = 0;
        for (int i = 0; i < STEP_LINES; i++)
            found[i] = gdi_find_loop(&g, i, &m);
        for (int i = 0; i < STEP_LINES; i++)
            gone += g.gone[i];
        if (pass == 0) {
            CHECK(found[2] == GDI_LOOP_BLEND && found[6] == GDI_LOOP_BLEND_SQUARE && found[11] == GDI_LOOP_ROOT_STEP && gone == 12);
            CHECK(m.to == 2 && m.from[0] == WEIGHTS && m.from[1] == RATE && m.from[2] == 0 && m.from[3] == 1 && m.from[4] == EPS);
            g.single[C1] = 0;                            /* no single value: no loop */
        } else if (pass == 1) {
            CHECK(found[2] == -1 && found[6] == GDI_LOOP_BLEND_SQUARE && gone == 9);
            g.single[C1] = 1;
            g.place[0] = g.place[SQUARES];               /* the mean is written over what line 3 has read: line 6 is too late */
            int64_t line[GDI_FUSED_LINE];
            memcpy(line, lines + 3 * GDI_FUSED_LINE, sizeof line);
            memmove(lines + GDI_FUSED_LINE, lines, 3 * sizeof line);
            memcpy(lines, line, sizeof line);
        } else {
            CHECK(found[3] == GDI_LOOP_BLEND && found[6] == -1 && found[11] == GDI_LOOP_ROOT_STEP && gone == 8);
        }
    }
}

/* A group of one output o0, inputs 1 to 3, registers from 4 on. */
static gdi_group small_group(const int64_t (*line)[GDI_FUSED_LINE], int lines)
{
    gdi_group g = {.line = line[0], .lines = lines, .n = 4, .n_out = 1};
    for (int k = 0; k < g.n; k++)
        g.place[k] = (gdi_place){64 * k, 4};
    return g;
}

/* What relu lets through is one loop if the comparison is of the cotangent's dtype, with a single value. */
static void test_gate(void)
{
    int64_t line[][GDI_FUSED_LINE] = {{GD_OP_GREATER, GD_BOOL, 4, 1, 2, -1}, {GD_OP_CAST, GD_FLOAT32, 5, 4, -1, -1},
                                      {GD_OP_ZMUL, GD_FLOAT32, 0, 5, 3, -1}, {GD_OP_ADD, GD_FLOAT32, 0, 0, 5, -1}};
    gdi_micro m;
    for (int pass = 0; pass < 4; pass++) {
        gdi_group g = small_group((const int64_t (*)[GDI_FUSED_LINE])line, pass == 3 ? 4 : 3);
        for (int k = 0; k < g.n; k++)
            g.dtype_of[k] = GD_FLOAT32;
        g.single[2] = pass != 1;
        g.dtype_of[1] = pass == 2 ? GD_FLOAT64 : GD_FLOAT32;
        const int loop = gdi_find_loop(&g, 2, &m);
        CHECK(loop == (pass == 0 ? (int)GDI_LOOP_GATE : -1) && g.gone[0] == (pass == 0) && g.gone[1] == g.gone[0] && g.gone[2] == g.gone[0]);
        CHECK(pass > 0 || (m.to == 0 && m.from[0] == 1 && m.from[1] == 2 && m.from[2] == 3));
    }
}

enum { O0, O1, X, ZERO, G, R0, R1, R2 };                 /* of a gate beside a relu: two outputs, three inputs, registers */

static gdi_group gate_group(const int64_t (*line)[GDI_FUSED_LINE])
{
    gdi_group g = {.line = line[0], .lines = 5, .n = R0, .n_out = X};
    for (int k = 0; k < g.n; k++) {
        g.place[k] = (gdi_place){64 * k, 4};
        g.dtype_of[k] = GD_FLOAT32;
    }
    g.single[ZERO] = 1;
    return g;
}

/* relu of what the gate looks at is done with it, unless its result is read before, or what it reads is written. */
static void test_gate_with_relu(void)
{
    const gdi_table *t = gdi_active();
    int64_t line[][GDI_FUSED_LINE] = {{GD_OP_RELU, GD_FLOAT32, O0, X, -1, -1}, {GD_OP_NEGATIVE, GD_FLOAT32, R2, G, -1, -1},
                                      {GD_OP_GREATER, GD_BOOL, R0, X, ZERO, -1}, {GD_OP_CAST, GD_FLOAT32, R1, R0, -1, -1},
                                      {GD_OP_ZMUL, GD_FLOAT32, O1, R1, R2, -1}};
    for (int pass = 0; pass < 6; pass++) {
        gdi_group g = gate_group((const int64_t (*)[GDI_FUSED_LINE])line);
        gdi_micro m = {.fn = NULL};
        line[0][0] = pass == 1 ? GD_OP_ABS : GD_OP_RELU;
        line[0][1] = pass == 2 ? GD_FLOAT64 : GD_FLOAT32;
        line[1][3] = pass == 3 ? O0 : G;                 /* read before the gate */
        line[0][2] = pass == 4 ? R2 : O0;                /* written again */
        line[0][3] = pass == 5 ? G : X;                  /* of another value */
        CHECK(gdi_find_loop(&g, 4, &m) == GDI_LOOP_GATE && m.reads == 3 && m.singles == 1 << 1 && !g.gone[0]);
        const int found = gdi_find_relu(&g, t, 4, &m);
        CHECK(found == (pass == 0) && g.gone[0] == found && !g.gone[1]);
        CHECK(!found || (m.two == t->two[0][GDI_TWO_GATE] && !m.fn && m.to == O0 && m.also == O1 && m.from[0] == X && m.from[2] == R2));
    }
    gdi_group g = gate_group((const int64_t (*)[GDI_FUSED_LINE])line);
    gdi_micro m = {.fn = NULL};
    line[0][3] = X, line[1][2] = O1, line[4][4] = O1, line[4][2] = O1;
    g.place[O1] = g.place[X];                            /* what relu reads is written over before the gate */
    CHECK(gdi_find_loop(&g, 4, &m) == GDI_LOOP_GATE && gdi_find_relu(&g, t, 4, &m) == 0);
}

static void test_pairs(void)
{
    const gdi_table *t = gdi_active();
    gdi_micro m;
    int64_t line[][GDI_FUSED_LINE] = {{GD_OP_MULTIPLY, GD_FLOAT32, 4, 1, 2, -1}, {GD_OP_NEGATIVE, GD_FLOAT32, 5, 3, -1, -1},
                                      {GD_OP_ADD, GD_FLOAT32, 0, 5, 4, -1}, {GD_OP_SUBTRACT, GD_FLOAT32, 0, 0, 5, -1}};
    gdi_group g = small_group((const int64_t (*)[GDI_FUSED_LINE])line, 3);
    CHECK(gdi_find_pair(&g, t, 1, &m) == 0 && gdi_find_pair(&g, t, 0, &m) == 0);
    CHECK(gdi_find_pair(&g, t, 2, &m) == 1 && g.gone[0] && !g.gone[1] && g.gone[2]);
    gdi_micro pair;
    gdi_pair_lookup(t, GD_OP_MULTIPLY, GD_OP_ADD, 1, GD_FLOAT32, &pair);
    CHECK(pair.fn && m.fn == pair.fn && m.lone[0] == pair.lone[0] && m.reads == 3);
    CHECK(m.to == 0 && m.from[0] == 1 && m.from[1] == 2 && m.from[2] == 5);
    line[1][2] = 0, g = small_group((const int64_t (*)[GDI_FUSED_LINE])line, 3), line[2][3] = 3;
    CHECK(gdi_find_pair(&g, t, 2, &m) == 1);
    g = small_group((const int64_t (*)[GDI_FUSED_LINE])line, 3), g.place[0] = g.place[2];      /* line 1 is written over input 2 */
    CHECK(gdi_find_pair(&g, t, 2, &m) == 0);
    line[1][2] = 5, line[2][3] = 5, line[3][4] = 4, g = small_group((const int64_t (*)[GDI_FUSED_LINE])line, 4);     /* another reads it */
    CHECK(gdi_find_pair(&g, t, 2, &m) == 0);
    line[3][4] = 5, line[0][1] = GD_FLOAT64, g = small_group((const int64_t (*)[GDI_FUSED_LINE])line, 4);
    CHECK(gdi_find_pair(&g, t, 2, &m) == 0);
}

static gdi_group float_group(const int64_t (*line)[GDI_FUSED_LINE], int lines)
{
    gdi_group g = small_group(line, lines);
    for (int k = 0; k < g.n; k++)
        g.dtype_of[k] = GD_FLOAT32;
    return g;
}

/* where by a comparison that it alone reads. */
static void test_choices(void)
{
    static const struct { int op, loop, x, y, s, t; } cases[] = {
        {GD_OP_EQUAL, 0, 1, 2, 3, 2}, {GD_OP_NOT_EQUAL, 0, 1, 2, 2, 3}, {GD_OP_LESS, 1, 1, 2, 3, 2}, {GD_OP_GREATER, 1, 2, 1, 3, 2},
        {GD_OP_LESS_EQUAL, 2, 1, 2, 3, 2}, {GD_OP_GREATER_EQUAL, 2, 2, 1, 3, 2}, {GD_OP_ISNAN, 0, 1, 1, 2, 3},
    };
    const gdi_table *t = gdi_active();
    gdi_micro m;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int single = 0; single < 4; single++) {     /* the number of the input that is one element; 0: none */
            const int64_t line[][GDI_FUSED_LINE] = {{cases[k].op, GD_BOOL, 4, 1, cases[k].op == GD_OP_ISNAN ? -1 : 2, -1},
                                                    {GD_OP_NEGATIVE, GD_FLOAT32, 5, 3, -1, -1}, {GD_OP_WHERE, GD_FLOAT32, 0, 4, 3, 2}};
            gdi_group g = float_group(line, 3);
            if (single)
                g.single[single] = 1;
            CHECK(gdi_find_choice(&g, t, 0, &m) == 0 && gdi_find_choice(&g, t, 1, &m) == 0);
            CHECK(gdi_find_choice(&g, t, 2, &m) == 1 && g.gone[0] && !g.gone[1] && g.gone[2]);
            CHECK(m.to == 0 && m.reads == 4 && m.from[0] == cases[k].x && m.from[1] == cases[k].y && m.from[2] == cases[k].s && m.from[3] == cases[k].t);
            const int compared = !single || cases[k].op == GD_OP_ISNAN ? 0 : cases[k].x == single ? 1 : cases[k].y == single ? 2 : 0;
            const int chosen = !single ? 0 : cases[k].s == single ? 1 : cases[k].t == single ? 2 : 0;
            CHECK(m.fn && m.fn == t->choice[0][cases[k].loop][compared][chosen]);
            CHECK(m.singles == ((compared > 0) << (compared > 1) | (chosen > 0) << (chosen > 1 ? 3 : 2)));
        }
    int64_t line[][GDI_FUSED_LINE] = {{GD_OP_LESS, GD_BOOL, 4, 1, 2, -1}, {GD_OP_NEGATIVE, GD_FLOAT32, 5, 3, -1, -1},
                                      {GD_OP_WHERE, GD_FLOAT32, 0, 4, 5, 2}, {GD_OP_WHERE, GD_FLOAT32, 0, 5, 0, 3}};
    const int64_t (*lines)[GDI_FUSED_LINE] = (const int64_t (*)[GDI_FUSED_LINE])line;
    gdi_group g = float_group(lines, 3);
    CHECK(gdi_find_choice(&g, t, 2, &m) == 1 && m.from[2] == 5);
    g = float_group(lines, 3), g.dtype_of[1] = GD_FLOAT64;                 /* other numbers are compared */
    CHECK(gdi_find_choice(&g, t, 2, &m) == 0 && !g.gone[0]);
    line[1][2] = 0, g = float_group(lines, 3), g.place[0] = g.place[2];    /* what is compared is written over before the choice */
    CHECK(gdi_find_choice(&g, t, 2, &m) == 0 && !g.gone[0]);
    line[1][2] = 5, line[3][3] = 4, g = float_group(lines, 4);             /* another reads the comparison */
    CHECK(gdi_find_choice(&g, t, 2, &m) == 0);
    line[3][3] = 5, line[0][0] = GD_OP_LOGICAL_AND, g = float_group(lines, 4);
    CHECK(gdi_find_choice(&g, t, 2, &m) == 0);
    line[0][0] = GD_OP_LESS, line[2][1] = GD_INT32, g = float_group(lines, 4);
    CHECK(gdi_find_choice(&g, t, 2, &m) == 0);
}

static void test_twos(void)
{
    static const int ops[GDI_TWO_GATE][2] = {[GDI_TWO_SIGMOID] = {GD_OP_SIGMOID, GD_OP_SIGMOID_GRAD}, [GDI_TWO_TANH] = {GD_OP_TANH, GD_OP_TANH_GRAD},
                                         [GDI_TWO_SIN] = {GD_OP_SIN, GD_OP_COS}};
    const gdi_table *t = gdi_active();
    gdi_micro m;
    for (int k = 0; k < GDI_TWO_GATE; k++)
        for (int turned = 0; turned < 2; turned++) {
            int64_t line[][GDI_FUSED_LINE] = {{ops[k][turned], GD_FLOAT32, 4, 1, -1, -1}, {ops[k][!turned], GD_FLOAT32, 5, 1, -1, -1},
                                              {GD_OP_ADD, GD_FLOAT32, 0, 5, 4, -1}};
            const int64_t (*lines)[GDI_FUSED_LINE] = (const int64_t (*)[GDI_FUSED_LINE])line;
            gdi_group g = small_group(lines, 3);
            CHECK(gdi_find_two(&g, t, 1, &m) == 0 && gdi_find_two(&g, t, 2, &m) == 0);
            CHECK(gdi_find_two(&g, t, 0, &m) == 1 && g.gone[0] && g.gone[1] && m.two == t->two[0][k]);
            CHECK(m.to == 4 + turned && m.also == 5 - turned && m.from[0] == 1 && !m.fn);
            line[0][3] = line[1][3] = 4, g = small_group(lines, 3);        /* the first is written over what the second reads */
            CHECK(gdi_find_two(&g, t, 0, &m) == 0);
            line[0][3] = 1, line[1][3] = 2, g = small_group(lines, 3);
            CHECK(gdi_find_two(&g, t, 0, &m) == 0);
            line[1][3] = 1, line[1][1] = GD_FLOAT64, g = small_group(lines, 3);
            CHECK(gdi_find_two(&g, t, 0, &m) == 0);
        }
}

/* sigmoid(x) and sigmoid(-x): lines that follow each other, with a -x that nobody else reads. */
static void test_sigmoids(void)
{
    const gdi_table *t = gdi_active();
    gdi_micro m;
    int64_t line[][GDI_FUSED_LINE] = {{GD_OP_SIGMOID, GD_FLOAT64, 4, 1, -1, -1}, {GD_OP_NEGATIVE, GD_FLOAT64, 5, 1, -1, -1},
                                      {GD_OP_SIGMOID, GD_FLOAT64, 6, 5, -1, -1}, {GD_OP_ADD, GD_FLOAT64, 0, 6, 4, -1}};
    const int64_t (*lines)[GDI_FUSED_LINE] = (const int64_t (*)[GDI_FUSED_LINE])line;
    gdi_group g = small_group(lines, 4);
    CHECK(gdi_find_two(&g, t, 1, &m) == 0 && gdi_find_two(&g, t, 2, &m) == 0);
    CHECK(gdi_find_two(&g, t, 0, &m) == 1 && g.gone[0] && g.gone[1] && g.gone[2] && !g.gone[3]);
    CHECK(m.two == t->two[1][GDI_TWO_SIGMOIDS] && m.to == 4 && m.also == 6 && m.from[0] == 1 && !m.fn);
    line[2][2] = 5, line[3][3] = 5, g = small_group(lines, 4);             /* over -x */
    CHECK(gdi_find_two(&g, t, 0, &m) == 1 && m.also == 5);
    line[2][2] = 6, g = small_group(lines, 4);                             /* -x is read again */
    CHECK(gdi_find_two(&g, t, 0, &m) == 0 && !g.gone[1]);
    line[3][3] = 6, line[0][2] = 0, line[3][4] = 6, g = small_group(lines, 4), g.place[0] = g.place[1];      /* the first is written over x */
    CHECK(gdi_find_two(&g, t, 0, &m) == 0);
    g = small_group(lines, 4);
    CHECK(gdi_find_two(&g, t, 0, &m) == 1 && m.to == 0);
    line[0][2] = 4, line[1][3] = 2, g = small_group(lines, 4);             /* minus another */
    CHECK(gdi_find_two(&g, t, 0, &m) == 0);
    line[1][3] = 1, line[2][3] = 3, g = small_group(lines, 4);
    CHECK(gdi_find_two(&g, t, 0, &m) == 0);
    line[2][3] = 5, line[1][2] = 0, line[2][3] = 0, g = small_group(lines, 4);      /* -x is a result */
    CHECK(gdi_find_two(&g, t, 0, &m) == 0);
    line[1][2] = line[2][3] = 5, g = small_group(lines, 2);                /* the group ends */
    CHECK(gdi_find_two(&g, t, 0, &m) == 0);
}

int main(int argc, char **argv)
{
    const int rounds = getenv("GRAPHDIFF_LONG") ? 4000 : 300;
    if (choose_isa(argc, argv))
        return 2;
    test_loops();
    test_gate();
    test_gate_with_relu();
    test_pairs();
    test_choices();
    test_twos();
    test_sigmoids();
    for (int i = 0; i < rounds; i++)
        CHECK(one_step());
    CHECK(gd_alloc_live() == 0);
    return report();
}
