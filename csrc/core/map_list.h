/* map_list.h: every elementwise row as GD_MAP(NAME, name, arity, test), whatever its .def macro says about dtypes.
 * test = 1: the result is bool whatever the operands are. */
#define GD_UNARY_FLOAT(N, n, e) GD_MAP(N, n, 1, 0)
#define GD_UNARY_BLOCK(N, n, f) GD_MAP(N, n, 1, 0)
#define GD_UNARY_CHEAP(N, n, e) GD_MAP(N, n, 1, 0)
#define GD_UNARY_FAST(N, n, e, f) GD_MAP(N, n, 1, 0)
#define GD_UNARY_ANY(N, n, f, i) GD_MAP(N, n, 1, 0)
#define GD_UNARY_INT(N, n, i, b) GD_MAP(N, n, 1, 0)
#define GD_UNARY_TEST(N, n, e) GD_MAP(N, n, 1, 1)
#define GD_UNARY_FTEST(N, n, e) GD_MAP(N, n, 1, 1)
#include "../ops/unary.def"
#undef GD_UNARY_FLOAT
#undef GD_UNARY_BLOCK
#undef GD_UNARY_CHEAP
#undef GD_UNARY_FAST
#undef GD_UNARY_ANY
#undef GD_UNARY_INT
#undef GD_UNARY_TEST
#undef GD_UNARY_FTEST
#define GD_BINARY_FLOAT(N, n, e) GD_MAP(N, n, 2, 0)
#define GD_BINARY_FAST(N, n, e, f) GD_MAP(N, n, 2, 0)
#define GD_BINARY_CHEAP(N, n, e) GD_MAP(N, n, 2, 0)
#define GD_BINARY_CALM(N, n, e, c) GD_MAP(N, n, 2, 0)
#define GD_BINARY_ANY(N, n, f, i, b) GD_MAP(N, n, 2, 0)
#define GD_BINARY_INT(N, n, i, b) GD_MAP(N, n, 2, 0)
#define GD_BINARY_DIVIDE(N, n, f, i, b) GD_MAP(N, n, 2, 0)
#define GD_BINARY_TEST(N, n, e) GD_MAP(N, n, 2, 1)
#define GD_TERNARY_ANY(N, n, e) GD_MAP(N, n, 3, 0)
#include "../ops/binary.def"
#undef GD_BINARY_FLOAT
#undef GD_BINARY_FAST
#undef GD_BINARY_CHEAP
#undef GD_BINARY_CALM
#undef GD_BINARY_ANY
#undef GD_BINARY_INT
#undef GD_BINARY_DIVIDE
#undef GD_BINARY_TEST
#undef GD_TERNARY_ANY
