/* workspace.c: the memory of one running call, allocated whole before it runs and never during it. */
#include "program.h"

static int64_t at_least_one(int64_t n) { return n > 0 ? n : 1; }

/* Programs that handle so many bytes or fewer use little of private memory. In huge pages the first byte would take 2 MB, for every set of
 * sizes of every function (softmax of ten numbers). */
enum { SPARSE_NBYTES = 1 << 20 };

static int is_sparse(const gd_program *p)
{
    int64_t nbytes = p->scratch_nbytes;
    for (int64_t i = 0; i < p->n_base && nbytes <= SPARSE_NBYTES; i++)
        nbytes += p->base_nbytes[i];
    return nbytes <= SPARSE_NBYTES;
}

static int allocate(gd_workspace *w, const gd_program *p)
{
    void *(*const private)(int64_t) = is_sparse(p) ? gdi_alloc_sparse : gdi_alloc;
    w->arena = gdi_alloc(at_least_one(p->base_nbytes[GD_BASE_ARENA]));
    w->base = gdi_alloc(p->n_base * (int64_t)sizeof *w->base);
    if (!w->arena || !w->base)
        return GD_NO_MEMORY;
    if (p->scratch_nbytes > 0 && !(w->scratch = gdi_alloc(p->scratch_nbytes)))
        return GD_NO_MEMORY;
    for (int i = 0; i < w->threads && p->local_nbytes > 0; i++)
        if (!(w->local[i] = private(p->local_nbytes)))
            return GD_NO_MEMORY;
    w->base[GD_BASE_ARENA] = w->arena;
    w->base[GD_BASE_CONST] = p->constants;
    return GD_OK;
}

int gd_workspace_new(const gd_program *p, int threads, gd_workspace **out)
{
    *out = NULL;
    gd_workspace *w = gdi_alloc((int64_t)sizeof *w);
    if (!w)
        return GD_NO_MEMORY;
    w->program = p;
    w->threads = threads < 1 || !p->parallel ? 1 : threads < GDI_MAX_THREADS ? threads : GDI_MAX_THREADS;
    int status = allocate(w, p);
    if (status == GD_OK)
        *out = w;
    else
        gd_workspace_free(w);
    return status;
}

void gd_workspace_free(gd_workspace *w)
{
    if (!w)
        return;
    for (int i = 0; i < GDI_MAX_THREADS; i++)
        gdi_free(w->local[i]);
    gdi_free(w->scratch);
    gdi_free(w->arena);
    gdi_free(w->base);
    gdi_free(w);
}

/* Writes what is there to every page, or the first instruction that does would wait for the system to give it. */
static void touch(char *memory, int64_t nbytes)
{
    enum { PAGE = 4096 };
    volatile char *at = memory;
    for (int64_t i = 0; memory && i < nbytes; i += PAGE)
        at[i] = at[i];
}

void gdi_workspace_touch(gd_workspace *w)
{
    const gd_program *p = w->program;
    touch(w->arena, p->base_nbytes[GD_BASE_ARENA]);
    touch(w->scratch, p->scratch_nbytes);
    for (int i = 0; i < w->threads; i++)
        touch(w->local[i], p->local_nbytes);
}

char *gd_workspace_arena(gd_workspace *w) { return w->arena; }

void gd_restart(gd_workspace *w)
{
    w->pc = w->item = 0;
    w->phase = 0;
}
