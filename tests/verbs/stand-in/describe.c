/* Descriptions of cards: by a test, or by the environment. */
#include "internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <time.h>

static uint32_t or32(uint32_t value, uint32_t otherwise) { return value ? value : otherwise; }
static uint64_t or64(uint64_t value, uint64_t otherwise) { return value ? value : otherwise; }

static bool copy(char *to, size_t room, const char *from)
{
    int length = snprintf(to, room, "%s", from ? from : "");
    return length >= 0 && (size_t)length < room;
}

static uint64_t utc_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fill_in(stand_in_device *is)
{
    is->max_qp_wr = or32(is->max_qp_wr, 32768);
    is->max_sge = or32(is->max_sge, 30);
    is->max_cqe = or32(is->max_cqe, 4194303);
    is->max_flows = or32(is->max_flows, 65536);
    is->vendor_id = or32(is->vendor_id, 0x02c9);
    is->vendor_part_id = or32(is->vendor_part_id, 4125);
    is->clock_khz = or64(is->clock_khz, 1000000);
    is->clock_mask = or64(is->clock_mask, 0x7fffffffffffffffu);
    is->clock_origin_ns = or64(is->clock_origin_ns, utc_now() - 3600000000000u);
}

static int name_device(struct card *card, const stand_in_device *device)
{
    static unsigned made; /* under the lock */
    const char *root = *card->sysfs ? card->sysfs : "/sys";
    struct ibv_device *ibv = &card->ibv;
    int n = snprintf(ibv->dev_name, sizeof ibv->dev_name, "uverbs%u", made++);
    int m = snprintf(ibv->dev_path, sizeof ibv->dev_path, "%s/class/infiniband_verbs/%s", root, ibv->dev_name);
    int k = snprintf(ibv->ibdev_path, sizeof ibv->ibdev_path, "%s/class/infiniband/%s", root, device->name);
    ibv->node_type = IBV_NODE_CA;
    ibv->transport_type = IBV_TRANSPORT_IB;
    return n < 0 || m < 0 || k < 0 || (size_t)m >= sizeof ibv->dev_path || (size_t)k >= sizeof ibv->ibdev_path ? EINVAL : 0;
}

int describe(const stand_in_device *device, const char *capture, struct card **made)
{
    if (!device->name || !*device->name || strchr(device->name, '/')) return EINVAL;
    if (card_named(device->name)) return EEXIST;
    struct card *card = calloc(1, sizeof *card);
    if (!card) return ENOMEM;
    const char *net = device->net ? device->net : device->interface;
    bool fits = copy(card->ibv.name, sizeof card->ibv.name, device->name)
                && copy(card->interface, sizeof card->interface, device->interface)
                && copy(card->net, sizeof card->net, net) && copy(card->sysfs, sizeof card->sysfs, device->sysfs)
                && copy(card->capture, sizeof card->capture, capture);
    card->is = *device;
    fill_in(&card->is);
    card->up = !(device->flags & STAND_IN_PORT_DOWN);
    card->counter = card->socket = card->stop = -1;
    card->next_number = 64;
    card->mtu = or32(device->mtu, 1500);
    int error = fits ? name_device(card, device) : EINVAL;
    if (!error && *card->sysfs) error = make_files(card);
    if (error) {
        free(card);
        return error;
    }
    struct card **last = &cards;
    while (*last) last = &(*last)->next;
    *last = card;
    card->listed = true;
    *made = card;
    return 0;
}

static const struct {
    const char *word;
    uint32_t flag;
} flags[] = {
    {"no-raw-packet", STAND_IN_NO_RAW_PACKET}, {"infiniband", STAND_IN_INFINIBAND},
    {"no-cq-ex", STAND_IN_NO_CQ_EX},           {"no-stamps", STAND_IN_NO_STAMPS},
    {"no-wallclock", STAND_IN_NO_WALLCLOCK},   {"no-dmabuf", STAND_IN_NO_DMABUF},
    {"peermem", STAND_IN_PEERMEM},             {"no-csum", STAND_IN_NO_CSUM},
    {"no-net-raw", STAND_IN_NO_NET_RAW},       {"no-access", STAND_IN_NO_ACCESS},
    {"any-mac", STAND_IN_ANY_MAC},             {"too-long-drops", STAND_IN_TOO_LONG_DROPS},
    {"too-long-keeps", STAND_IN_TOO_LONG_KEEPS}, {"port-down", STAND_IN_PORT_DOWN},
    {"long-lengths", STAND_IN_LONG_LENGTHS},
};

/* What follows the name and its sign, or NULL. */
static const char *after(const char *word, const char *name)
{
    size_t length = strlen(name);
    return strncmp(word, name, length) ? NULL : word + length;
}

static bool number(const char *word, stand_in_device *d)
{
    const struct {
        const char *name;
        uint32_t *at32;
        void *at64;
    } numbers[] = {
        {"max-qp-wr=", &d->max_qp_wr, NULL},     {"max-sge=", &d->max_sge, NULL},
        {"max-cqe=", &d->max_cqe, NULL},         {"max-flows=", &d->max_flows, NULL},
        {"mtu=", &d->mtu, NULL},                 {"vendor-id=", &d->vendor_id, NULL},
        {"vendor-part-id=", &d->vendor_part_id, NULL}, {"memlock=", NULL, &d->memlock},
        {"clock-khz=", NULL, &d->clock_khz},     {"clock-mask=", NULL, &d->clock_mask},
        {"clock-origin-ns=", NULL, &d->clock_origin_ns}, {"clock-ppb=", NULL, &d->clock_ppb},
        {"wall-ahead-ns=", NULL, &d->wall_ahead_ns},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *text = after(word, numbers[i].name);
        char *end;
        if (!text || !*text) continue;
        errno = 0;
        long long value = strtoll(text, &end, 0);
        if (*end || errno) return false;
        if (numbers[i].at32) *numbers[i].at32 = (uint32_t)value;
        else memcpy(numbers[i].at64, &value, sizeof value);
        return true;
    }
    return false;
}

struct failing {
    char call[64];
    int error;
};

static bool one_word(const char *word, stand_in_device *d, const char **capture, struct failing *fail, size_t *fails)
{
    const char *text;
    if ((text = after(word, "interface="))) return (d->interface = text), *text;
    if ((text = after(word, "net="))) return (d->net = text), *text;
    if ((text = after(word, "sysfs="))) return (d->sysfs = text), *text;
    if ((text = after(word, "capture="))) return (*capture = text), *text;
    if ((text = after(word, "fail=")) && *fails < CALLS)
        return sscanf(text, "%63[a-z_]:%d", fail[*fails].call, &fail[*fails].error) == 2 && ++*fails;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(word, flags[i].word)) return d->flags |= flags[i].flag, true;
    return number(word, d);
}

static void one_card(char *text)
{
    stand_in_device device = {0};
    struct failing fail[CALLS];
    size_t fails = 0;
    const char *capture = NULL;
    char *rest = NULL;
    device.name = strtok_r(text, " \t\n", &rest);
    if (!device.name) return;
    for (char *word; (word = strtok_r(NULL, " \t\n", &rest));)
        if (!one_word(word, &device, &capture, fail, &fails))
            fprintf(stderr, "verbs stand-in: VERBS_STAND_IN: what is %s?\n", word);
    struct card *card;
    int error = describe(&device, capture, &card);
    if (error) fprintf(stderr, "verbs stand-in: VERBS_STAND_IN: %s: %s\n", device.name, strerror(error));
    for (size_t i = 0; i < fails && !error; i++)
        if (fail_call(card, fail[i].call, fail[i].error, UINT32_MAX))
            fprintf(stderr, "verbs stand-in: VERBS_STAND_IN: there is no call %s\n", fail[i].call);
}

void describe_from_environment(void)
{
    static bool done;
    const char *text = getenv("VERBS_STAND_IN");
    if (done || !text) return;
    done = true;
    char *all = strdup(text), *rest = NULL;
    if (!all) return;
    for (char *card = strtok_r(all, ";", &rest); card; card = strtok_r(NULL, ";", &rest)) one_card(card);
    free(all);
}

/* When the library is loaded, for a program may look at the cards' files before it asks for the devices. */
__attribute__((constructor)) static void begin(void)
{
    pthread_mutex_lock(&lock);
    describe_from_environment();
    pthread_mutex_unlock(&lock);
}
