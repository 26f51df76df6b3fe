/* status.c: the verifier's reasons in words. Python adds names and places. */
#include "program.h"

static const char *const reasons[GDI_REASON_COUNT] = {
#define GDI_REASON(NAME, text) text,
    GDI_REASONS(GDI_REASON)
#undef GDI_REASON
};

const char *gd_reason(int what)
{
    return what >= 0 && what < GDI_REASON_COUNT ? reasons[what] : "";
}

void gdi_fault_clear(gd_fault *fault)
{
    *fault = (gd_fault){.instr = -1, .what = -1, .value = -1, .axis = -1, .size = -1};
}
