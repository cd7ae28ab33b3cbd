/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops for a matrix of one dtype; included once for each by few_rows_loops.h, which defines
 * ELEMENT, its type, SUM, that of the sums and of x, V, a vector of them, what is done with such a
 * vector (LOAD_X, BEGIN_X, FMA, SUM_LANES, SUM_FOUR), and NAME (adds the dtype).  What a loop does for so many
 * rows and columns or vectors is inlined with these as constants, so that sums stay in registers.
 */
#define LANES     ((int64_t)(WEFT_I_FEW_ROWS_LANES / sizeof(SUM)))
#define PER       ((int64_t)(VECTOR_BYTES / sizeof(SUM))) /* elements of a vector */
#define PARTS     (WEFT_I_FEW_ROWS_LANES / VECTOR_BYTES)
#define MATRIX    ((const ELEMENT *)p->matrix)
#define LINE      ((int64_t)(64 / sizeof(ELEMENT)))
#define X_ROW(i_) ((const SUM *)p->x + (i_)*p->x_skip)

/*
 * A core fetches what follows in a page, but not the next page, nor as much as memory can deliver.  So
 * loops ask for elements that they will need: those AHEAD in the same line of the matrix, or as far
 * in the line that comes after it.
 */
#define AHEAD ((int64_t)(AHEAD_BYTES / sizeof(ELEMENT)))

/* ---- a matrix that is adjacent in depth ---- */

/* Adds LANES terms from k on to the sums of columns that begin with `at`, and asks for what lies
 * `ahead`. */
static ALWAYS void NAME(add_lanes)(const weft_i_few_rows_product *p, int rows, int columns,
                                   const ELEMENT *at, int64_t k, int64_t ahead,
                                   V sum[][COLUMNS][PARTS])
{
    V x[WEFT_I_FEW_ROWS];
    UNROLL
    for (int j = 0; j < columns; j++)
        __builtin_prefetch(at + j * p->matrix_skip + k + ahead);
    UNROLL
    for (int part = 0; part < PARTS; part++, k += PER) {
        UNROLL
        for (int i = 0; i < rows; i++)
            x[i] = LOAD_X(X_ROW(i) + k);
        UNROLL
        for (int j = 0; j < columns; j++) {
            V y = NAME(load)(at + j * p->matrix_skip + k);
            UNROLL
            for (int i = 0; i < rows; i++)
                sum[i][j][part] = FMA(x[i], y, sum[i][j][part]);
        }
    }
}

/* The same for the last, of which there are fewer. */
static ALWAYS void NAME(add_last)(const weft_i_few_rows_product *p, int rows, int columns,
                                  const ELEMENT *at, int64_t k, V sum[][COLUMNS][PARTS])
{
    UNROLL
    for (int part = 0; part < PARTS; part++, k += PER) {
        int64_t n = p->depth - k < PER ? p->depth - k : PER;
        if (n <= 0)
            return;
        UNROLL
        for (int j = 0; j < columns; j++) {
            V y = NAME(begin)(at + j * p->matrix_skip + k, n);
            UNROLL
            for (int i = 0; i < rows; i++)
                sum[i][j][part] = FMA(BEGIN_X(X_ROW(i) + k, n), y, sum[i][j][part]);
        }
    }
}

static ALWAYS void NAME(dot_columns)(const weft_i_few_rows_product *p, int rows, int columns,
                                     int64_t column)
{
    const ELEMENT *at = MATRIX + column * p->matrix_skip;
    V sum[WEFT_I_FEW_ROWS][COLUMNS][PARTS] = {{{{0}}}};
    int64_t near = AHEAD < p->depth ? AHEAD : p->depth, far = columns * p->matrix_skip - p->depth,
            k = 0;
    for (; k + LANES <= p->depth; k += LANES)
        NAME(add_lanes)(p, rows, columns, at, k, k + near < p->depth ? near : near + far, sum);
    if (k < p->depth)
        NAME(add_last)(p, rows, columns, at, k, sum);
    UNROLL
    for (int i = 0; i < rows; i++) {
        SUM *out = (SUM *)p->out + i * p->out_skip + column;
        if (columns == 4)
            SUM_FOUR(out, sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        else {
            UNROLL
            for (int j = 0; j < columns; j++)
                out[j] = SUM_LANES(sum[i][j]);
        }
    }
}

static ALWAYS void NAME(dot_rows)(const weft_i_few_rows_product *p, int rows)
{
    const int columns = COLUMNS_FOR(rows);
    int64_t column = 0;
    for (; column + columns <= p->columns; column += columns)
        NAME(dot_columns)(p, rows, columns, column);
    for (; column < p->columns; column++)
        NAME(dot_columns)(p, rows, 1, column);
}

static void NAME(dot)(const weft_i_few_rows_product *p)
{
    BY_ROWS(NAME(dot_rows))
}

/* ---- a matrix that is adjacent in columns ---- */

/* Adds the terms [k, k + depth) to the sums of `vectors` vectors of columns. */
static ALWAYS void NAME(add_vectors)(const weft_i_few_rows_product *p, int rows, int vectors,
                                     int64_t k, int64_t depth, int64_t column)
{
    int64_t near = AHEAD < p->columns ? AHEAD : p->columns,
            far = WEFT_I_FEW_ROWS_DEPTH * p->matrix_skip - p->columns,
            ahead = column + near < p->columns ? near : near + far;
    const ELEMENT *at = MATRIX + k * p->matrix_skip + column;
    V sum[WEFT_I_FEW_ROWS][VECTORS] = {{{0}}}, y[VECTORS];
    for (int64_t l = 0; l < depth; l++, at += p->matrix_skip) {
        UNROLL
        for (int64_t j = 0; j < vectors * PER; j += LINE)
            __builtin_prefetch(at + j + ahead);
        UNROLL
        for (int j = 0; j < vectors; j++)
            y[j] = NAME(load)(at + j * PER);
        UNROLL
        for (int i = 0; i < rows; i++) {
            V x = X_ROW(i)[k + l] - (V){0};
            UNROLL
            for (int j = 0; j < vectors; j++)
                sum[i][j] = FMA(x, y[j], sum[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        SUM *out = (SUM *)p->out + i * p->out_skip + column;
        UNROLL
        for (int j = 0; j < vectors; j++) {
            V old = LOAD_X(out + j * PER) + sum[i][j];
            memcpy(out + j * PER, &old, sizeof old);
        }
    }
}

/* The same for the last columns, fewer than a vector has. */
static ALWAYS void NAME(add_vector_begin)(const weft_i_few_rows_product *p, int rows, int64_t k,
                                          int64_t depth, int64_t column)
{
    const ELEMENT *at = MATRIX + k * p->matrix_skip + column;
    int64_t n = p->columns - column;
    V sum[WEFT_I_FEW_ROWS] = {{0}};
    for (int64_t l = 0; l < depth; l++, at += p->matrix_skip) {
        V y = NAME(begin)(at, n);
        UNROLL
        for (int i = 0; i < rows; i++)
            sum[i] = FMA(X_ROW(i)[k + l] - (V){0}, y, sum[i]);
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        SUM *out = (SUM *)p->out + i * p->out_skip + column, each[VECTOR_BYTES / sizeof(SUM)];
        memcpy(each, &sum[i], sizeof each);
        for (int64_t j = 0; j < n; j++)
            out[j] += each[j];
    }
}

static ALWAYS void NAME(axpy_rows)(const weft_i_few_rows_product *p, int rows)
{
    for (int i = 0; i < rows; i++)
        memset((SUM *)p->out + i * p->out_skip, 0, (size_t)p->columns * sizeof(SUM));
    for (int64_t k = 0; k < p->depth; k += WEFT_I_FEW_ROWS_DEPTH) {
        int64_t left = p->depth - k,
                depth = left < WEFT_I_FEW_ROWS_DEPTH ? left : WEFT_I_FEW_ROWS_DEPTH, column = 0;
        for (; column + VECTORS * PER <= p->columns; column += VECTORS * PER)
            NAME(add_vectors)(p, rows, VECTORS, k, depth, column);
        for (; column + PER <= p->columns; column += PER)
            NAME(add_vectors)(p, rows, 1, k, depth, column);
        if (column < p->columns)
            NAME(add_vector_begin)(p, rows, k, depth, column);
    }
}

static void NAME(axpy)(const weft_i_few_rows_product *p)
{
    BY_ROWS(NAME(axpy_rows))
}

#undef ELEMENT
#undef SUM
#undef V
#undef LOAD_X
#undef BEGIN_X
#undef FMA
#undef SUM_LANES
#undef SUM_FOUR
#undef NAME
#undef LANES
#undef PER
#undef PARTS
#undef MATRIX
#undef X_ROW
#undef LINE
#undef AHEAD
