/* list_isas.c: the names of the ISAs that this build has and this CPU can run, one a line; for the Makefile. */
#include "../include/graphdiff.h"
#include <stdio.h>

int main(void)
{
    for (int i = 0; i < gd_isa_count(); i++)
        if (gd_isa_supported(i)) printf("%s\n", gd_isa_name(i));
    return 0;
}
