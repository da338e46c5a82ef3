/* In place of the CUDA driver, for check_gpu.c: copies are made when the stream is waited for, and only within the context that
 * belongs to the device. */
#include <stddef.h>
#include <string.h>

enum { POINTER_TYPE = 2, POINTER_DEVICE = 9, ORDINAL = 3, SIZE = 1 << 16, COPIES = 256 };

static _Alignas(4096) unsigned char memory[SIZE];
static char context, stream;
static struct {
    void *to;
    const void *from;
    size_t length;
} copies[COPIES];
static unsigned count;
static int pushed;
int contexts, streams; /* that there are now */

unsigned char *device_memory(void) { return memory; }
int cuInit(unsigned flags) { return (int)flags; }

int cuPointerGetAttribute(void *value, int attribute, unsigned long long pointer)
{
    unsigned char *at = (unsigned char *)(size_t)pointer;
    if (at < memory || at >= memory + SIZE) return 1;
    *(int *)value = attribute == POINTER_TYPE ? 2 : attribute == POINTER_DEVICE ? ORDINAL : 99;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **made, int device)
{
    *made = &context;
    contexts++;
    return device != ORDINAL;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    contexts--;
    return device != ORDINAL;
}

int cuCtxPushCurrent_v2(void *which) { return which == &context ? pushed++, 0 : 201; }

int cuCtxPopCurrent_v2(void **which)
{
    *which = &context;
    pushed--;
    return 0;
}

int cuStreamCreate(void **made, unsigned flags)
{
    if (pushed != 1 || flags != 1) return 2;
    *made = &stream;
    streams++;
    return 0;
}

int cuStreamDestroy_v2(void *which)
{
    streams--;
    return pushed != 1 || which != &stream;
}

int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t length, void *which)
{
    if (pushed != 1 || which != &stream || count == COPIES) return 1;
    copies[count].to = (void *)(size_t)to;
    copies[count].from = from;
    copies[count++].length = length;
    return 0;
}

int cuStreamSynchronize(void *which)
{
    if (pushed != 1 || which != &stream) return 1;
    for (unsigned i = 0; i < count; i++) memcpy(copies[i].to, copies[i].from, copies[i].length);
    count = 0;
    return 0;
}
