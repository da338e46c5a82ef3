/* Devices, their properties, the environment, and memory. */
#include "check.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

static void properties(void)
{
    const stand_in_device device = {.name = "props0", .max_qp_wr = 1024, .max_sge = 4, .clock_khz = 78125, .mtu = 9000};
    IS(stand_in_add(&device), 0);
    IS(stand_in_add(&device), EEXIST);
    struct ibv_context *context = open_card("props0");
    CHECK(context);
    CHECK(!strcmp(context->device->ibdev_path, "/sys/class/infiniband/props0"));
    struct ibv_device_attr attr;
    IS(ibv_query_device(context, &attr), 0);
    IS(attr.max_qp_wr, 1024);
    IS(attr.max_sge, 4);
    IS(attr.vendor_id, 0x02c9);
    CHECK(attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM);
    struct ibv_device_attr_ex ex;
    IS(ibv_query_device_ex(context, NULL, &ex), 0);
    IS(ex.hca_core_clock, 78125);
    IS(ex.completion_timestamp_mask, 0x7fffffffffffffff);
    CHECK(ibv_is_qpt_supported(ex.rss_caps.supported_qpts, IBV_QPT_RAW_PACKET));
    struct ibv_port_attr port;
    IS(ibv_query_port(context, 1, &port), 0);
    IS(port.state, IBV_PORT_ACTIVE);
    IS(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    IS(ibv_query_port(context, 2, &port), EINVAL);
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    IS(ibv_query_rt_values_ex(context, &values), 0);
    /* An hour of 78.125 MHz, and the seconds since. */
    CHECK(values.raw_clock.tv_nsec >= 78125000L * 3600 && values.raw_clock.tv_nsec < 78125000L * 3700);
    IS(stand_in_remove("props0"), EBUSY);
    IS(ibv_close_device(context), 0);
    remove_card("props0");
    IS(stand_in_remove("props0"), ENODEV);
}

static void refusals(void)
{
    add_card("refuse0", STAND_IN_NO_ACCESS);
    CHECK(!open_card("refuse0"));
    IS(errno, EACCES);
    IS(stand_in_set_flags("refuse0", 0), 0);
    IS(stand_in_fail("refuse0", "ibv_open_device", EPERM, 1), 0);
    IS(stand_in_fail("refuse0", "ibv_open", EPERM, 1), EINVAL);
    CHECK(!open_card("refuse0"));
    IS(errno, EPERM);
    struct ibv_context *context = open_card("refuse0");
    CHECK(context);
    IS(ibv_close_device(context), 0);
    IS(stand_in_fail(NULL, "ibv_get_device_list", ENOSYS, 1), 0);
    CHECK(!ibv_get_device_list(NULL));
    IS(errno, ENOSYS);
    CHECK(!open_card("nobody"));
    remove_card("refuse0");
}

/* As check_devices sets the variable: the library reads it once. */
static void environment(void)
{
    struct ibv_context *context = open_card("env0");
    struct ibv_port_attr port;
    struct ibv_device_attr attr;
    CHECK(context);
    IS(ibv_query_port(context, 1, &port), 0);
    IS(port.state, IBV_PORT_DOWN);
    IS(ibv_query_device(context, &attr), 0);
    IS(attr.max_qp_wr, 512);
    CHECK(!ibv_alloc_pd(context));
    IS(errno, ENOMEM);
    IS(ibv_close_device(context), 0);
    remove_card("env0");
    CHECK((context = open_card("env1")));
    struct ibv_cq_init_attr_ex cq = {.cqe = 8, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
    CHECK(!ibv_create_cq_ex(context, &cq));
    IS(errno, EOPNOTSUPP);
    IS(ibv_close_device(context), 0);
    remove_card("env1");
}

/* Played when the first rule is there, and only once. */
static void capture_of_environment(void)
{
    for (int time = 0; time < 2; time++) {
        struct receiver r = open_receiver("env2", 0);
        for (uint64_t at = 0; at < ENTRIES; at++) IS(post_entry(&r, at), 0);
        CHECK((r.flow = udp_rule(r.qp, "239.1.1.1", 5004, 0)));
        for (int ms = 0; ms < (time ? 30 : 5000) && counts("env2").arrived < (time ? 6 : 5); ms++) poll(NULL, 0, 1);
        IS(counts("env2").delivered, 5);
        close_receiver(&r);
    }
    remove_card("env2");
}

void check_devices(void)
{
    char capture[] = "/tmp/verbs-stand-in-XXXXXX", variable[256];
    int fd = mkstemp(capture);
    CHECK(fd >= 0);
    close(fd);
    write_capture(capture, 5);
    const char *cards = "env0 max-qp-wr=512 port-down fail=ibv_alloc_pd:12; env1 no-wallclock;env2 capture=%s";
    snprintf(variable, sizeof variable, cards, capture);
    setenv("VERBS_STAND_IN", variable, 1);
    environment();
    capture_of_environment();
    IS(unlink(capture), 0);
    properties();
    refusals();
}

static void host_memory(void)
{
    const stand_in_device device = {.name = "mem0", .memlock = 8192};
    IS(stand_in_add(&device), 0);
    struct ibv_context *context = open_card("mem0");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    static uint8_t memory[16384];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, 8000, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    CHECK(!ibv_reg_mr(pd, memory, 193, IBV_ACCESS_LOCAL_WRITE));
    IS(errno, ENOMEM);
    IS(ibv_dereg_mr(mr), 0);
    CHECK(!ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE));
    IS(errno, EINVAL);
    CHECK(!ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE));
    IS(errno, EINVAL);
    void *hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole, 8192);
    CHECK(!ibv_reg_mr(pd, hole, 64, IBV_ACCESS_LOCAL_WRITE));
    IS(errno, EFAULT);
    IS(counts("mem0").mrs, 0);
    IS(counts("mem0").registered, 0);
    IS(ibv_dealloc_pd(pd), 0);
    IS(ibv_close_device(context), 0);
    remove_card("mem0");
}

static void dmabufs(void)
{
    add_card("mem1", 0);
    struct ibv_context *context = open_card("mem1");
    struct ibv_pd *pd = ibv_alloc_pd(context);
    int fd = memfd_create("dmabuf", 0);
    IS(ftruncate(fd, 8192), 0);
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 4096, 4096, 0x10000, fd, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    IS(ibv_dereg_mr(mr), 0);
    CHECK(!ibv_reg_dmabuf_mr(pd, 4096, 4097, 0x10000, fd, IBV_ACCESS_LOCAL_WRITE)); /* past the end */
    IS(errno, EINVAL);
    CHECK(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0x10001, fd, IBV_ACCESS_LOCAL_WRITE)); /* another place within the page */
    IS(errno, EINVAL);
    CHECK(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0x10000, -1, IBV_ACCESS_LOCAL_WRITE));
    IS(errno, EBADF);
    IS(stand_in_set_flags("mem1", STAND_IN_NO_DMABUF), 0);
    CHECK(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0x10000, fd, IBV_ACCESS_LOCAL_WRITE));
    IS(errno, EOPNOTSUPP);
    close(fd);
    IS(ibv_dealloc_pd(pd), 0);
    IS(ibv_close_device(context), 0);
    remove_card("mem1");
}

void check_memory(void)
{
    host_memory();
    dmabufs();
}
