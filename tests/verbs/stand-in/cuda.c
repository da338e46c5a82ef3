/* Memory of a GPU, through the CUDA driver where there is one: found while the program runs, by the names and numbers of
 * NVIDIA's public documentation of the driver API. */
#include "internal.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef int (*fn_init)(unsigned flags);
typedef int (*fn_pointer)(void *value, int attribute, unsigned long long pointer);
typedef int (*fn_retain)(void **context, int device);
typedef int (*fn_release)(int device);
typedef int (*fn_push)(void *context);
typedef int (*fn_pop)(void **context);
typedef int (*fn_make)(void **stream, unsigned flags);
typedef int (*fn_stream)(void *stream);
typedef int (*fn_copy)(unsigned long long to, const void *from, size_t length, void *stream);

enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9, TYPE_DEVICE = 2, NON_BLOCKING = 1 };

static struct {
    fn_init init;
    fn_pointer pointer;
    fn_retain retain;
    fn_release release;
    fn_push push;
    fn_pop pop;
    fn_make make;
    fn_stream destroy, finish;
    fn_copy copy;
    bool works;
} driver;

struct cuda {
    int device;
    void *context, *stream;
};

static void find_driver(void)
{
    const char *path = getenv("VERBS_STAND_IN_CUDA");
    if (path && !*path) return;
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const struct {
        const char *name;
        void *into;
    } calls[] = {
        {"cuInit", &driver.init},
        {"cuPointerGetAttribute", &driver.pointer},
        {"cuDevicePrimaryCtxRetain", &driver.retain},
        {"cuDevicePrimaryCtxRelease_v2", &driver.release},
        {"cuCtxPushCurrent_v2", &driver.push},
        {"cuCtxPopCurrent_v2", &driver.pop},
        {"cuStreamCreate", &driver.make},
        {"cuStreamDestroy_v2", &driver.destroy},
        {"cuStreamSynchronize", &driver.finish},
        {"cuMemcpyHtoDAsync_v2", &driver.copy},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(library, calls[i].name);
        if (!symbol) return;
        memcpy(calls[i].into, &symbol, sizeof symbol);
    }
    driver.works = !driver.init(0);
}

static int make_stream(struct cuda *cuda)
{
    void *popped;
    int failed = driver.push(cuda->context);
    if (failed) return failed;
    failed = driver.make(&cuda->stream, NON_BLOCKING);
    driver.pop(&popped);
    return failed;
}

bool cuda_for(const void *addr, struct cuda **cuda)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_driver);
    *cuda = NULL;
    unsigned type = 0;
    unsigned long long pointer = (uintptr_t)addr;
    /* An error: a pointer that CUDA knows nothing of. */
    if (!driver.works || driver.pointer(&type, MEMORY_TYPE, pointer) || type != TYPE_DEVICE) return true;
    struct cuda *made = calloc(1, sizeof *made);
    if (!made) return false;
    if (driver.pointer(&made->device, DEVICE_ORDINAL, pointer) || driver.retain(&made->context, made->device)) {
        free(made);
        return false;
    }
    if (make_stream(made)) {
        driver.release(made->device);
        free(made);
        return false;
    }
    *cuda = made;
    return true;
}

/* The octets are there when this returns: a completion follows. */
bool cuda_write(struct cuda *cuda, void *to, const void *from, size_t length)
{
    void *popped;
    if (driver.push(cuda->context)) return false;
    int failed = driver.copy((uintptr_t)to, from, length, cuda->stream);
    if (!failed) failed = driver.finish(cuda->stream);
    driver.pop(&popped);
    return !failed;
}

void cuda_close(struct cuda *cuda)
{
    void *popped;
    if (!driver.push(cuda->context)) {
        driver.destroy(cuda->stream);
        driver.pop(&popped);
    }
    driver.release(cuda->device);
    free(cuda);
}
