/* Protection domains and registered memory. */
#include "internal.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pd *pd_of(struct ibv_pd *ibv) { return container_of(ibv, struct pd, ibv); }

STAND_IN_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ibv)
{
    pthread_mutex_lock(&lock);
    int error = refused(card_of(ibv), context_of(ibv), CALL_ALLOC_PD);
    struct pd *made = error ? NULL : calloc(1, sizeof *made);
    if (made) {
        made->ibv.context = ibv;
        card_of(ibv)->counts.pds++;
    }
    pthread_mutex_unlock(&lock);
    if (!made) errno = error ? error : ENOMEM;
    return made ? &made->ibv : NULL;
}

STAND_IN_EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
    struct pd *pd = pd_of(ibv);
    pthread_mutex_lock(&lock);
    struct context *context = context_of(ibv->context);
    int error = pd->gone ? EIO : refused(context->card, NULL, CALL_DEALLOC_PD);
    if (!error && pd->users) {
        misuse(context->card, "ibv_dealloc_pd under %u objects", pd->users);
        error = EBUSY;
    }
    if (!error) {
        error = after_pull(context);
        context->card->counts.pds--;
        if (error) bury(pd, &pd->gone);
        else free(pd);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* --- lkeys: an index and a number that changes, so that an old one does not hold again --- */

static int give_key(struct card *card, struct mr *mr)
{
    size_t at = 0;
    while (at < card->mr_room && card->mrs[at]) at++;
    if (at == card->mr_room) {
        size_t room = at ? 2 * at : 64;
        struct mr **more = room < 1u << 23 ? realloc(card->mrs, room * sizeof *more) : NULL;
        if (!more) return ENOMEM;
        memset(more + at, 0, (room - at) * sizeof *more);
        card->mrs = more;
        card->mr_room = room;
    }
    card->mrs[at] = mr;
    mr->ibv.handle = (uint32_t)at;
    mr->ibv.lkey = mr->ibv.rkey = (uint32_t)(at + 1) << 8 | (uint8_t)++card->next_handle;
    return 0;
}

struct mr *memory_of(const struct queue *queue, const struct ibv_sge *segment, size_t length)
{
    const struct card *card = queue->context->card;
    size_t at = (size_t)(segment->lkey >> 8) - 1;
    struct mr *mr = at < card->mr_room ? card->mrs[at] : NULL;
    if (!mr || mr->ibv.lkey != segment->lkey || mr->ibv.context != &queue->context->verbs.context) return NULL;
    if (mr->ibv.pd != &queue->pd->ibv || !(mr->access & IBV_ACCESS_LOCAL_WRITE)) return NULL;
    uint64_t from = segment->addr - mr->iova;
    bool within = segment->addr >= mr->iova && from <= mr->ibv.length && length <= mr->ibv.length - from;
    return within ? mr : NULL;
}

bool write_memory(struct mr *mr, uint64_t addr, const uint8_t *data, size_t length)
{
    uint8_t *to = mr->memory + (addr - mr->iova);
    if (mr->where == IN_GPU) return cuda_write(mr->cuda, to, data, length);
    memcpy(to, data, length);
    return true;
}

/* --- registering --- */

/* Whether all pages are mapped. */
static bool mapped(const void *addr, size_t length)
{
    enum { STEP = 4096 };
    unsigned char in_core[STEP];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)addr & ~(page - 1), end = (uintptr_t)addr + length;
    if (end < (uintptr_t)addr) return false;
    for (; at < end; at += STEP * page) {
        size_t step = end - at < STEP * page ? end - at : STEP * page;
        if (mincore((void *)at, step, in_core)) return false;
    }
    return true;
}

static int find_memory(const struct card *card, void *addr, size_t length, struct mr *mr)
{
    mr->memory = addr;
    if (!cuda_for(addr, &mr->cuda)) return EFAULT;
    if (mr->cuda) {
        mr->where = IN_GPU;
        return card->is.flags & STAND_IN_PEERMEM ? 0 : EFAULT;
    }
    if (!mapped(addr, length)) return EFAULT;
    if (card->is.memlock && length > card->is.memlock - card->counts.registered) return ENOMEM;
    return 0;
}

static void let_go(struct mr *mr)
{
    if (mr->cuda) cuda_close(mr->cuda);
    if (mr->mapping) munmap(mr->mapping, mr->mapping_length);
    mr->cuda = NULL;
    mr->mapping = NULL;
}

static struct ibv_mr *finish(struct ibv_pd *pd, struct mr *mr, int error)
{
    struct card *card = card_of(pd->context);
    if (!error) error = give_key(card, mr);
    if (!error) {
        pd_of(pd)->users++;
        card->counts.mrs++;
        card->counts.registered += mr->ibv.length;
        return &mr->ibv;
    }
    if (mr) let_go(mr);
    free(mr);
    errno = error;
    return NULL;
}

static struct mr *begin(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access, int *error)
{
    const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
                           | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;
    const unsigned by_others = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if (!*error && (!length || access & ~known || (access & by_others && !(access & IBV_ACCESS_LOCAL_WRITE)))) *error = EINVAL;
    struct mr *mr = *error ? NULL : calloc(1, sizeof *mr);
    if (!*error && !mr) *error = ENOMEM;
    if (!mr) return NULL;
    mr->ibv.context = pd->context;
    mr->ibv.pd = pd;
    mr->ibv.addr = addr;
    mr->ibv.length = length;
    mr->iova = iova;
    mr->access = access;
    return mr;
}

STAND_IN_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
    pthread_mutex_lock(&lock);
    int error = refused(card_of(pd->context), context_of(pd->context), CALL_REG_MR);
    struct mr *mr = begin(pd, addr, length, iova, access, &error);
    if (mr) error = find_memory(card_of(pd->context), addr, length, mr);
    struct ibv_mr *made = finish(pd, mr, error);
    pthread_mutex_unlock(&lock);
    return made;
}

STAND_IN_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

STAND_IN_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

/* --- dma-bufs --- */

enum { MAX_KNOWN = 64 };
static struct known {
    dev_t device;
    ino_t inode;
    uint8_t *memory;
} known[MAX_KNOWN];

int stand_in_dmabuf(int fd, void *memory)
{
    struct stat stat;
    if (fstat(fd, &stat)) return errno;
    int error = 0;
    pthread_mutex_lock(&lock);
    struct known *free_one = NULL, *at = NULL;
    for (struct known *k = known; k < known + MAX_KNOWN; k++) {
        if (k->memory && k->device == stat.st_dev && k->inode == stat.st_ino) at = k;
        if (!k->memory) free_one = k;
    }
    if (!at) at = free_one;
    if (at) *at = (struct known){stat.st_dev, stat.st_ino, memory};
    else if (memory) error = ENOMEM;
    pthread_mutex_unlock(&lock);
    return error;
}

static uint8_t *memory_known(const struct stat *stat)
{
    for (struct known *k = known; k < known + MAX_KNOWN; k++)
        if (k->memory && k->device == stat->st_dev && k->inode == stat->st_ino) return k->memory;
    return NULL;
}

/* What the test says it is, else CUDA's memory at the iova, else what the fd maps. */
static int find_dmabuf(struct mr *mr, uint64_t offset, int fd)
{
    struct stat stat;
    if (fstat(fd, &stat)) return EBADF;
    off_t size = lseek(fd, 0, SEEK_END);
    if (size > 0 && (offset > (uint64_t)size || mr->ibv.length > (uint64_t)size - offset)) return EINVAL;
    uint8_t *memory = memory_known(&stat);
    mr->memory = memory ? memory + offset : (uint8_t *)(uintptr_t)mr->iova;
    if (!cuda_for(mr->memory, &mr->cuda)) return EFAULT;
    if (mr->cuda) mr->where = IN_GPU;
    if (mr->cuda || memory) return 0;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = offset & ~(page - 1);
    mr->mapping_length = mr->ibv.length + (size_t)(offset - from);
    void *mapping = mmap(NULL, mr->mapping_length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
    if (mapping == MAP_FAILED) return EINVAL; /* as the kernel says of what is no dma-buf */
    mr->where = IN_MAPPING;
    mr->mapping = mapping;
    mr->memory = (uint8_t *)mapping + (offset - from);
    return 0;
}

STAND_IN_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                                 int access)
{
    uint64_t within_page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;
    pthread_mutex_lock(&lock);
    struct card *card = card_of(pd->context);
    int error = refused(card, context_of(pd->context), CALL_REG_DMABUF_MR);
    if (!error && card->is.flags & STAND_IN_NO_DMABUF) error = EOPNOTSUPP;
    if (!error && (offset & within_page) != (iova & within_page)) error = EINVAL;
    struct mr *mr = begin(pd, NULL, length, iova, (unsigned)access, &error);
    if (mr) error = find_dmabuf(mr, offset, fd);
    struct ibv_mr *made = finish(pd, mr, error);
    pthread_mutex_unlock(&lock);
    return made;
}

STAND_IN_EXPORT int ibv_dereg_mr(struct ibv_mr *ibv)
{
    struct mr *mr = container_of(ibv, struct mr, ibv);
    pthread_mutex_lock(&lock);
    struct context *context = context_of(ibv->context);
    struct card *card = context->card;
    int error = mr->gone ? EIO : refused(card, NULL, CALL_DEREG_MR);
    if (!error && (mr->ibv.handle >= card->mr_room || card->mrs[mr->ibv.handle] != mr)) {
        misuse(card, "ibv_dereg_mr of what is not registered");
        error = EINVAL;
    }
    if (!error) {
        error = after_pull(context);
        card->mrs[mr->ibv.handle] = NULL;
        card->counts.mrs--;
        card->counts.registered -= mr->ibv.length;
        pd_of(ibv->pd)->users--;
        let_go(mr);
        if (error) bury(mr, &mr->gone);
        else free(mr);
    }
    pthread_mutex_unlock(&lock);
    return error;
}
