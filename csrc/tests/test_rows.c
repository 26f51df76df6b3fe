/* test_rows.c: groups of rows against plain C, the rules that they keep one by one, and damaged ones, which are refused or
 * run inside their memory. Prints "N passed, N failed". */
#include "build.h"
#include "../core/rows.h"

/* y = (x - mean) w over rows of n, sums of rows of y, and sums of columns of y */
enum { ROWS = 37, N = 70, OUT = 0, SUM, COLUMNS, COUNT, W, X, REGISTER, HELD = REGISTER + GDI_AT_KEPT, STAT = REGISTER + GDI_AT_STATS, LINES = 9 };
enum { BYTES = ROWS * N * 8 };

static builder *good(void)
{
    builder *b = new_builder(BYTES + ROWS * 8 + N * 8);
    int args[] = {view(b, 0, GD_FLOAT64, 0, 2, (int64_t[]){ROWS, N}, (int64_t[]){N, 1}), vector(b, 0, GD_FLOAT64, BYTES, ROWS),
                  vector(b, 0, GD_FLOAT64, BYTES + ROWS * 8, N), view(b, 2, GD_FLOAT64, 0, 1, (int64_t[]){ROWS}, (int64_t[]){0}),
                  view(b, 3, GD_FLOAT64, 0, 2, (int64_t[]){ROWS, N}, (int64_t[]){0, 1}), view(b, 4, GD_FLOAT64, 0, 2, (int64_t[]){ROWS, N}, (int64_t[]){1, ROWS})};
    b->nbytes[2] = 8, b->nbytes[3] = N * 8, b->nbytes[4] = BYTES;
    emit(b, GD_OP_ROWS, 5, args);
    b->instr[0].n_out = 3, b->instr[0].n_in = 3;
    attrs(b, LINES * GDI_FUSED_LINE, (int64_t[]){
        -1, 2, -1, -1, -1, -1,
        GD_OP_SUM, GD_FLOAT64, STAT, X, -1, -1,
        -1, 3, -1, -1, -1, -1,
        GD_OP_DIVIDE, GD_FLOAT64, STAT, STAT, COUNT, -1,
        -1, 2, -1, -1, -1, -1,
        GD_OP_SUBTRACT, GD_FLOAT64, HELD, X, STAT, -1,
        GD_OP_MULTIPLY, GD_FLOAT64, OUT, HELD, W, -1,
        GD_OP_SUM, GD_FLOAT64, SUM, OUT, -1, -1,
        GD_OP_SUM, GD_FLOAT64, COLUMNS, OUT, 1, -1});
    return b;
}

static double count = N, weight[N], values[ROWS * N];

static void test_values(int threads, int64_t budget)
{
    builder *b = good();
    double *arena = NULL, sums[ROWS] = {0}, columns[N] = {0};
    gd_program *p = NULL;
    gd_workspace *w = NULL;
    gd_fault f;
    /* whole numbers whose sums are exact: the tree does not matter */
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < N; j++)
            values[j * ROWS + i] = (double)((i * 7 + j * 3) % 11 * N);
    for (int j = 0; j < N; j++)
        weight[j] = j % 5 - 2;
    /* results go to a base of the caller's, where they can be seen */
    b->s.n_base = 5;
    arena = calloc(1, BYTES + ROWS * 8 + N * 8);
    for (int k = 0; k < 3; k++)
        b->view[k].base = 4;
    b->view[5].base = 0;
    b->nbytes[GD_BASE_ARENA] = BYTES;
    b->nbytes[4] = BYTES + ROWS * 8 + N * 8;
    /* x is copied into the arena by an instruction before */
    b->view[6] = b->view[5], b->view[6].base = 3, b->view[6].offset = N * 8;
    b->nbytes[3] = N * 8 + BYTES;
    b->s.n_view = 7;
    b->instr[1] = b->instr[0];
    b->instr[0] = (gd_instr){GD_OP_COPY, 1, 1, (int32_t)b->s.n_arg, 0, 0};
    b->arg[b->s.n_arg++] = 5, b->arg[b->s.n_arg++] = 6;
    b->s.n_instr = b->s.commit = 2;
    double *in = calloc(N + ROWS * N, sizeof *in);
    memcpy(in, weight, sizeof weight);
    memcpy(in + N, values, sizeof values);
    CHECK(gd_program_new(&b->s, &p, &f) == GD_OK);
    CHECK(p && gd_workspace_new(p, threads, &w) == GD_OK);
    int status = GD_MORE, more = 0;
    while (w && (status = gd_run(p, w, (void *[BASES]){NULL, NULL, &count, in, arena}, budget, &f)) == GD_MORE && more < 100000)
        more++;
    CHECK(status == GD_OK);
    int wrong = 0;
    for (int i = 0; i < ROWS; i++) {
        double mean = 0;
        for (int j = 0; j < N; j++)
            mean += values[j * ROWS + i];
        mean /= N;
        for (int j = 0; j < N; j++) {
            const double y = (values[j * ROWS + i] - mean) * weight[j];
            wrong += arena[i * N + j] != y;
            sums[i] += y;
            columns[j] += y;
        }
        wrong += arena[ROWS * N + i] != sums[i];
    }
    for (int j = 0; j < N; j++)
        wrong += arena[ROWS * N + ROWS + j] != columns[j];
    CHECK(wrong == 0);
    gd_workspace_free(w);
    gd_program_free(p);
    free(in), free(arena), free(b);
}

static int refused(builder *b, int what)
{
    gd_fault f;
    int status = run(b, 1, 0, (void *[BASES]){NULL, NULL, &count, weight, values}, &f, NULL), ok = status == GD_BAD_PROGRAM && f.what == what;
    if (!ok)
        printf("status %d what %d (%s), wanted %s\n", status, f.what, gd_reason(f.what), gd_reason(what));
    return ok;
}
#define REFUSED(what, change) do { builder *b = good(); change; CHECK(refused(b, GDI_REASON_##what)); free(b); } while (0)
#define LINE(i, k) b->attr[(i) * GDI_FUSED_LINE + (k)]

static void test_rules(void)
{
    gd_fault f;
    builder *fine = good();
    CHECK(run(fine, 1, 0, (void *[BASES]){NULL, NULL, &count, weight, values}, &f, NULL) == GD_OK);
    free(fine);
    REFUSED(MICRO, LINE(0, 0) = GD_OP_SUM);              /* no section begins */
    REFUSED(MICRO, LINE(0, 1) = 4);                      /* no axes of rows */
    REFUSED(MICRO, LINE(0, 1) = -2);
    REFUSED(MICRO, LINE(4, 1) = 0);                      /* other kept axes than before */
    REFUSED(MICRO, LINE(2, 3) = 0);
    REFUSED(MICRO, LINE(0, 1) = 3);                      /* a sum among stats */
    REFUSED(MICRO, LINE(2, 1) = 2);                      /* a stat made in a sweep */
    REFUSED(MICRO, LINE(4, 1) = 3);                      /* a whole value among stats */
    REFUSED(MICRO, LINE(3, 3) = X);                      /* stats of whole values */
    REFUSED(MICRO, LINE(3, 3) = STAT + 1);               /* a stat nobody made */
    REFUSED(MICRO, LINE(3, 2) = STAT + GDI_STATS);
    REFUSED(MICRO, (LINE(5, 2) = REGISTER, LINE(4, 0) = GD_OP_NEGATIVE, LINE(4, 1) = GD_FLOAT64, LINE(4, 2) = STAT, LINE(4, 3) = STAT));
    REFUSED(MICRO, LINE(5, 4) = SUM);                    /* an output before it is written */
    REFUSED(MICRO, LINE(6, 4) = COLUMNS);                /* a sum of columns is not read */
    REFUSED(MICRO, LINE(6, 3) = REGISTER);
    REFUSED(MICRO, LINE(1, 2) = REGISTER);               /* a sum of a row to a whole value */
    REFUSED(MICRO, LINE(1, 3) = COUNT);                  /* the sum of a small value */
    REFUSED(MICRO, LINE(7, 2) = OUT);
    REFUSED(MICRO, LINE(7, 4) = 2);
    REFUSED(MICRO, LINE(8, 5) = 0);
    REFUSED(SHAPE, LINE(7, 4) = 1);                      /* two sums of columns, one as long as there are rows */
    REFUSED(SHAPE, LINE(8, 2) = STAT);                   /* then output 2 is no sum of columns */
    REFUSED(DTYPE, LINE(1, 1) = GD_FLOAT32);
    REFUSED(DTYPE, LINE(5, 1) = GD_FLOAT32);
    REFUSED(OP, LINE(5, 0) = GD_OP_MATMUL);
    REFUSED(OP, LINE(5, 0) = GD_OP_ROWS);
    REFUSED(DTYPE, b->view[4].dtype = GD_FLOAT32);
    REFUSED(SHAPE, b->dim[b->view[1].dims] = ROWS - 1);
    REFUSED(SHAPE, b->dim[b->view[2].dims] = N - 1);
    REFUSED(SHAPE, b->dim[b->view[4].dims + 1] = N - 1);
    REFUSED(ATTRS, b->instr[0].n_attr--);
    REFUSED(ARITY, b->instr[0].n_in = 0);
    REFUSED(READ_ONLY, (b->view[0].base = 3, b->nbytes[3] = BYTES));
    REFUSED(OVERLAP, b->view[1].offset = 0);
}

/* A section that reads a sum which it makes itself, a register of the section before, and a small operand out of order. */
static void test_sections(void)
{
    REFUSED(MICRO, (LINE(4, 0) = GD_OP_SUM, LINE(4, 1) = GD_FLOAT64, LINE(4, 2) = STAT, LINE(4, 3) = X, LINE(4, 4) = -1, LINE(2, 1) = 2,
                    LINE(3, 0) = GD_OP_SUM, LINE(3, 2) = STAT + 1, LINE(3, 3) = X, LINE(3, 4) = -1));
    REFUSED(CALL, (b->dim[b->view[3].dims + 1] = 2, b->nbytes[2] = 8 * 2 * ROWS));     /* every other element: no vector */
}

/* Fields of lines and views changed at random: refused with a reason, or run (under the sanitizers: inside its memory). */
static void test_damage(void)
{
    static const int64_t odd[] = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 31, 37, 38, 69, 70, 71, 102, 255, GD_OP_CAST, GD_OP_SUM, GD_OP_ADD, GD_OP_ROWS, INT32_MAX, INT64_MIN};
    int ran = 0, bad = 0;
    double x[ROWS * N + 64], one[64] = {1};
    memset(x, 0, sizeof x);
    for (int i = 0; i < 4000; i++) {
        builder *b = good();
        b->nbytes[2] = sizeof one, b->nbytes[3] = sizeof one, b->nbytes[4] = sizeof x;
        b->nbytes[3] = N * 8;
        for (int k = (int)below(3); k >= 0; k--) {
            int64_t *field = below(2) ? &b->attr[below(LINES * GDI_FUSED_LINE)] : &b->dim[below(b->s.n_dim)];
            if (below(4) == 0)
                b->view[below(6)].dtype = (int32_t)below(GD_DTYPE_COUNT);
            *field = below(2) ? odd[below((int64_t)(sizeof odd / sizeof *odd))] : *field + below(5) - 2;
        }
        gd_fault f;
        const int status = run(b, 1 + (int)below(2), 0, (void *[BASES]){NULL, NULL, one, weight, x}, &f, NULL);
        ran += status == GD_OK;
        bad += !(status == GD_OK || (status == GD_BAD_PROGRAM && f.what > 0 && f.what < GDI_REASON_COUNT));
        free(b);
    }
    CHECK(bad == 0);
    CHECK(ran > 20);
}

int main(int argc, char **argv)
{
    if (choose_isa(argc, argv))
        return 1;
    for (int threads = 1; threads <= 2; threads++)
        for (int64_t budget = 0; budget <= 1; budget++)
            test_values(threads, budget);
    test_rules();
    test_sections();
    test_damage();
    return report();
}
