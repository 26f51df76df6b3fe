/* chain_list.h: chains that have a loop of their own in chain_t.inc: GDI_CHAINS(X) is X(name, eight links, -1 where there are fewer) for
 * each. They are those of layer_norm, rms_norm, batch_norm, group_norm and softmax, forward and reverse, and sums of products and of
 * squared distances. S: one value a row, O: all rows have the same elements. */
#ifndef GDI_CHAIN_LIST_H
#define GDI_CHAIN_LIST_H
#define GDI_CHAIN_(X, name, a, b, c, d, e, f, g, h) \
    X(name, GDI_CHAIN_##a, GDI_CHAIN_##b, GDI_CHAIN_##c, GDI_CHAIN_##d, GDI_CHAIN_##e, GDI_CHAIN_##f, GDI_CHAIN_##g, GDI_CHAIN_##h)
enum {
    GDI_CHAIN_END = -1,
    GDI_CHAIN_ADD = GDI_LINK_ADD,
    GDI_CHAIN_ADD_O = GDI_LINK_ADD + GDI_LINK_ONCE,
    GDI_CHAIN_ADD_S = GDI_LINK_ADD + GDI_LINK_SINGLE,
    GDI_CHAIN_COLUMN = GDI_LINK_COLUMN,
    GDI_CHAIN_COLUMN_O = GDI_LINK_COLUMN + GDI_LINK_ONCE,
    GDI_CHAIN_LOAD = GDI_LINK_LOAD,
    GDI_CHAIN_LOAD_S = GDI_LINK_LOAD + GDI_LINK_SINGLE,
    GDI_CHAIN_MULTIPLY = GDI_LINK_MULTIPLY,
    GDI_CHAIN_MULTIPLY_O = GDI_LINK_MULTIPLY + GDI_LINK_ONCE,
    GDI_CHAIN_MULTIPLY_S = GDI_LINK_MULTIPLY + GDI_LINK_SINGLE,
    GDI_CHAIN_SQUARE = GDI_LINK_SQUARE,
    GDI_CHAIN_STORE = GDI_LINK_STORE,
    GDI_CHAIN_SUBTRACT = GDI_LINK_SUBTRACT,
    GDI_CHAIN_SUBTRACT_FROM = GDI_LINK_SUBTRACT_FROM,
    GDI_CHAIN_SUBTRACT_O = GDI_LINK_SUBTRACT + GDI_LINK_ONCE,
    GDI_CHAIN_SUBTRACT_S = GDI_LINK_SUBTRACT + GDI_LINK_SINGLE,
    GDI_CHAIN_SUM = GDI_LINK_SUM,
    GDI_CHAIN_ZMUL = GDI_LINK_ZMUL,
    GDI_CHAIN_ZMUL_EITHER = GDI_LINK_ZMUL_EITHER,
    GDI_CHAIN_ZMUL_EITHER_S = GDI_LINK_ZMUL_EITHER + GDI_LINK_SINGLE,
    GDI_CHAIN_ZMUL_BY_S = GDI_LINK_ZMUL_BY + GDI_LINK_SINGLE,
    GDI_CHAIN_ZMUL_O = GDI_LINK_ZMUL + GDI_LINK_ONCE,
    GDI_CHAIN_ZMUL_S = GDI_LINK_ZMUL + GDI_LINK_SINGLE
};
#define GDI_CHAINS(X) \
    GDI_CHAIN_(X, sum, LOAD, SUM, END, END, END, END, END, END) \
    GDI_CHAIN_(X, scaled_sum, LOAD, ZMUL_S, SUM, END, END, END, END, END) \
    GDI_CHAIN_(X, product_sum, LOAD, ZMUL, SUM, END, END, END, END, END) \
    GDI_CHAIN_(X, product_column, LOAD, ZMUL, COLUMN, END, END, END, END, END) \
    GDI_CHAIN_(X, product_kept_sum, LOAD, ZMUL, STORE, SUM, END, END, END, END) \
    GDI_CHAIN_(X, either_kept_sum, LOAD, ZMUL_EITHER, STORE, SUM, END, END, END, END) \
    GDI_CHAIN_(X, square_sum, LOAD, SQUARE, SUM, END, END, END, END, END) \
    GDI_CHAIN_(X, multiply_sum, LOAD, MULTIPLY, SUM, END, END, END, END, END) \
    GDI_CHAIN_(X, distance_sum, LOAD, SUBTRACT, SQUARE, SUM, END, END, END, END) \
    GDI_CHAIN_(X, centred_sum, LOAD, SUBTRACT_S, SUM, END, END, END, END, END) \
    GDI_CHAIN_(X, variance, LOAD, SUBTRACT_S, SQUARE, SUM, END, END, END, END) \
    GDI_CHAIN_(X, variance_kept, LOAD, SUBTRACT_S, STORE, SQUARE, SUM, END, END, END) \
    GDI_CHAIN_(X, variance_twice, LOAD, SUBTRACT_S, SUBTRACT_S, SQUARE, SUM, END, END, END) \
    GDI_CHAIN_(X, variance_twice_kept, LOAD, SUBTRACT_S, SUBTRACT_S, STORE, SQUARE, SUM, END, END) \
    GDI_CHAIN_(X, scale, LOAD, ZMUL_S, STORE, END, END, END, END, END) \
    GDI_CHAIN_(X, affine, LOAD, MULTIPLY_S, MULTIPLY_O, ADD_O, STORE, END, END, END) \
    GDI_CHAIN_(X, affine_kept, LOAD, MULTIPLY_S, STORE, MULTIPLY_O, ADD_O, STORE, END, END) \
    GDI_CHAIN_(X, linear, LOAD, MULTIPLY_S, MULTIPLY_O, STORE, END, END, END, END) \
    GDI_CHAIN_(X, linear_kept, LOAD, MULTIPLY_S, STORE, MULTIPLY_O, STORE, END, END, END) \
    GDI_CHAIN_(X, normal, LOAD, SUBTRACT_S, SUBTRACT_S, MULTIPLY_S, STORE, END, END, END) \
    GDI_CHAIN_(X, normal_affine, LOAD, SUBTRACT_S, SUBTRACT_S, MULTIPLY_S, MULTIPLY_S, ADD_S, STORE, END) \
    GDI_CHAIN_(X, normal_affine_kept, LOAD, SUBTRACT_S, SUBTRACT_S, MULTIPLY_S, STORE, MULTIPLY_S, ADD_S, STORE) \
    GDI_CHAIN_(X, back_column, LOAD, COLUMN, ZMUL_O, STORE, SUM, END, END, END) \
    GDI_CHAIN_(X, back_column_product, LOAD, ZMUL_O, STORE, ZMUL, SUM, END, END, END) \
    GDI_CHAIN_(X, back, LOAD_S, ZMUL, SUBTRACT_FROM, SUBTRACT_S, ZMUL_S, STORE, END, END) \
    GDI_CHAIN_(X, back_square, LOAD_S, MULTIPLY, ZMUL_BY_S, ADD, STORE, END, END, END) \
    GDI_CHAIN_(X, back_softmax, LOAD, ZMUL_EITHER_S, SUBTRACT_FROM, STORE, END, END, END, END) \
    GDI_CHAIN_(X, back_log_softmax, LOAD, ZMUL_EITHER_S, SUBTRACT_FROM, ZMUL_BY_S, STORE, END, END, END)
/* Those of columns that GDI_ROWS_DEEP rows are added to at once (core/rows.h): sums of squares, of products, and of distances from
 * a row and their squares down the columns. */
#define GDI_DEEP_CHAINS(X) \
    GDI_CHAIN_(X, deep_square, LOAD, SQUARE, COLUMN_O, END, END, END, END, END) \
    GDI_CHAIN_(X, deep_product, LOAD, MULTIPLY, COLUMN_O, END, END, END, END, END) \
    GDI_CHAIN_(X, deep_centred, LOAD, SUBTRACT_O, COLUMN_O, END, END, END, END, END) \
    GDI_CHAIN_(X, deep_variance, LOAD, SUBTRACT_O, SQUARE, COLUMN_O, END, END, END, END) \
    GDI_CHAIN_(X, deep_gradient, LOAD, ZMUL, COLUMN_O, END, END, END, END, END)
#endif
