/* See shim.h. */
#include "shim.h"

#define SHIM(type, name, parameters, arguments) \
    type gdmedia_##name parameters { return name arguments; }
#define SHIM_VOID(name, parameters, arguments) \
    void gdmedia_##name parameters { name arguments; }
#include "calls.h"

void gdmedia_region_set(rmx_mem_region *region, void *addr, size_t length)
{
    region->length = length;
    gdmedia_region_give(region, addr);
}

/* No region: no such block. */

void gdmedia_region_give(rmx_mem_region *region, void *addr)
{
    if (!region) return;
    region->addr = addr;
    region->mkey = RMX_MKEY_INVALID;
}

void gdmedia_region_give_registered(rmx_mem_region *region, const rmx_mem_region *registered)
{
    if (!region) return;
    region->addr = registered->addr;
    region->mkey = registered->mkey;
}

size_t gdmedia_region_length(const rmx_mem_region *region) { return region ? region->length : 0; }
