/* Payloads in memory of a GPU: of a real one where VERBS_STAND_IN_CUDA is not set, else with the driver that it names
 * (check_fake_cuda.c). */
#include "check.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 1 << 21, DMA_BUF_FD = 1 };

typedef int (*fn_init)(unsigned);
typedef int (*fn_get)(int *, int);
typedef int (*fn_retain)(void **, int);
typedef int (*fn_push)(void *);
typedef int (*fn_alloc)(unsigned long long *, size_t);
typedef int (*fn_free)(unsigned long long);
typedef int (*fn_back)(void *, unsigned long long, size_t);
typedef int (*fn_export)(void *, unsigned long long, size_t, int, unsigned long long);
typedef unsigned char *(*fn_memory)(void);

static void *driver;

static bool find(const char *name, void *into)
{
    void *symbol = dlsym(driver, name);
    memcpy(into, &symbol, sizeof symbol);
    return symbol;
}

/* Device memory, and its dma-buf; false: no device. */
static bool allocate(unsigned long long *memory, size_t *size, int *fd)
{
    fn_memory fake;
    fn_init init;
    fn_get get;
    fn_retain retain;
    fn_push push;
    fn_alloc alloc;
    fn_export export;
    int device;
    void *context;
    if (find("device_memory", &fake)) {
        *memory = (uintptr_t)fake();
        *size = 1 << 16;
        *fd = memfd_create("dmabuf", 0);
        IS(ftruncate(*fd, (off_t)*size), 0);
        return true;
    }
    CHECK(find("cuInit", &init) && find("cuDeviceGet", &get) && find("cuDevicePrimaryCtxRetain", &retain));
    CHECK(find("cuCtxPushCurrent_v2", &push) && find("cuMemAlloc_v2", &alloc));
    CHECK(find("cuMemGetHandleForAddressRange", &export));
    if (init(0) || get(&device, 0)) return false;
    IS(retain(&context, device), 0);
    IS(push(context), 0);
    *size = SIZE;
    IS(alloc(memory, *size), 0);
    int error = export(fd, *memory, *size, DMA_BUF_FD, 0);
    if (error) {
        printf("no dma-buf of this device's memory (CUDA error %d): a memfd in its place\n", error);
        *fd = memfd_create("dmabuf", 0);
        IS(ftruncate(*fd, (off_t)*size), 0);
    }
    return true;
}

static void read_back(void *to, unsigned long long from, size_t length)
{
    fn_back back;
    if (find("cuMemcpyDtoH_v2", &back)) IS(back(to, from, length), 0);
    else memcpy(to, (void *)(uintptr_t)from, length);
}

/* The rest of a frame goes to the region `mr`, at this address. */
static void receive(struct receiver *r, struct ibv_mr *mr, unsigned long long at, uint8_t fill)
{
    uint8_t frame[2048], got[2048];
    size_t length = datagram(frame, 1, 5004, 1000);
    memset(frame + 42, fill, 1000);
    struct ibv_sge segments[2] = {{.addr = (uintptr_t)r->head, .length = HEAD, .lkey = r->head_mr->lkey},
                                  {.addr = at, .length = 1500, .lkey = mr->lkey}};
    struct ibv_recv_wr wr = {.sg_list = segments, .num_sge = 2}, *bad;
    struct ibv_wc wc;
    IS(ibv_post_recv(r->qp, &wr, &bad), 0);
    IS(stand_in_inject(r->card, frame, length, 0), 1);
    read_back(got, at, length - HEAD);
    CHECK(!memcmp(got, frame + HEAD, length - HEAD));
    CHECK(!memcmp(r->head, frame, HEAD));
    IS(ibv_poll_cq(r->cq, 1, &wc), 1);
    IS(wc.status, IBV_WC_SUCCESS);
}

void check_gpu(void)
{
    const char *path = getenv("VERBS_STAND_IN_CUDA");
    unsigned long long memory;
    size_t size;
    int fd;
    driver = path && !*path ? NULL : dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver || !allocate(&memory, &size, &fd)) {
        puts("skipped: no CUDA");
        return;
    }
    add_card("gpu0", 0);
    struct receiver r = open_receiver("gpu0", 0);
    CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(r.pd, 0, size, memory, fd, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    close(fd);
    receive(&r, mr, memory + 128, 1);
    IS(ibv_dereg_mr(mr), 0);
    CHECK(!ibv_reg_mr(r.pd, (void *)(uintptr_t)memory, size, IBV_ACCESS_LOCAL_WRITE));
    IS(errno, EFAULT);
    IS(stand_in_set_flags("gpu0", STAND_IN_PEERMEM), 0);
    CHECK((mr = ibv_reg_mr(r.pd, (void *)(uintptr_t)memory, size, IBV_ACCESS_LOCAL_WRITE)));
    receive(&r, mr, memory + 4096, 2);
    IS(ibv_dereg_mr(mr), 0);
    close_receiver(&r);
    remove_card("gpu0");
    int *contexts, *streams;
    fn_free let_go;
    if (find("contexts", &contexts)) IS(*contexts, 0);
    if (find("streams", &streams)) IS(*streams, 0);
    if (find("cuMemFree_v2", &let_go)) IS(let_go(memory), 0);
    puts("memory of a GPU: as it should be");
}
