/* The card's files, made like those below /sys. */
#include "internal.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 512 };

__attribute__((format(printf, 3, 0))) static bool path_of(const struct card *card, char path[LONGEST], const char *format,
                                                          va_list list)
{
    int n = snprintf(path, LONGEST, "%s/", card->sysfs);
    if (n < 0 || n >= LONGEST) return false;
    int m = vsnprintf(path + n, (size_t)(LONGEST - n), format, list);
    return m >= 0 && n + m < LONGEST;
}

/* The folders on the way to a file. */
static int make_way(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int failed = mkdir(path, 0777);
        *slash = '/';
        if (failed && errno != EEXIST) return errno;
    }
    return 0;
}

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), error = 0;
    if (fd < 0) return errno;
    if (write(fd, text, strlen(text)) < 0) error = errno;
    close(fd);
    return error;
}

/* A file of this text, or with `link` a link to it. Does nothing after an error. */
__attribute__((format(printf, 5, 6))) static void put(const struct card *card, int *error, bool link, const char *text,
                                                      const char *format, ...)
{
    char path[LONGEST];
    va_list list;
    if (*error) return;
    va_start(list, format);
    *error = path_of(card, path, format, list) ? make_way(path) : ENAMETOOLONG;
    va_end(list);
    if (*error) return;
    if (!link) *error = write_text(path, text);
    else if (symlink(text, path) && errno != EEXIST) *error = errno;
}

static void write_port(const struct card *card, int *error)
{
    const char *name = card->ibv.name;
    const char *state = card->up ? "4: ACTIVE\n" : "1: DOWN\n", *link = card->up ? "5: LinkUp\n" : "3: Disabled\n";
    put(card, error, false, state, "devices/%s/infiniband/%s/ports/1/state", name, name);
    put(card, error, false, link, "devices/%s/infiniband/%s/ports/1/phys_state", name, name);
}

void write_state(const struct card *card)
{
    int error = 0;
    if (*card->sysfs) write_port(card, &error);
}

void write_counter(struct card *card)
{
    char text[32];
    if (card->counter < 0 || card->counter_says == card->counts.out_of_buffer) return;
    card->counter_says = card->counts.out_of_buffer;
    int n = snprintf(text, sizeof text, "%llu\n", (unsigned long long)card->counter_says);
    /* At once, so that a reader sees one number or the other. */
    if (pwrite(card->counter, text, (size_t)n, 0) != n) misuse(card, "out_of_buffer cannot be written");
}

/* What belongs to the network interface. */
static void make_net_files(const struct card *card, int *error)
{
    const char *name = card->ibv.name, *net = card->net;
    char text[LONGEST];
    if (!*net) return;
    snprintf(text, sizeof text, "%s\n", net);
    put(card, error, false, text, "devices/%s/infiniband/%s/ports/1/gid_attrs/ndevs/0", name, name);
    put(card, error, false, "0\n", "devices/%s/net/%s/dev_port", name, net);
    put(card, error, true, "../..", "devices/%s/net/%s/device", name, net);
    snprintf(text, sizeof text, "../../devices/%s/net/%s", name, net);
    put(card, error, true, text, "class/net/%s", net);
}

int make_files(struct card *card)
{
    const char *name = card->ibv.name;
    char text[LONGEST];
    int error = 0;
    snprintf(text, sizeof text, "0x%04x\n", card->is.vendor_id == 0x02c9 ? 0x15b3 : card->is.vendor_id & 0xffff);
    put(card, &error, false, text, "devices/%s/vendor", name);
    snprintf(text, sizeof text, "0x%04x\n", card->is.vendor_part_id & 0xffff);
    put(card, &error, false, text, "devices/%s/device", name);
    put(card, &error, false, "-1\n", "devices/%s/numa_node", name);

    snprintf(text, sizeof text, "MT%u\n", card->is.vendor_part_id);
    put(card, &error, false, text, "devices/%s/infiniband/%s/hca_type", name, name);
    put(card, &error, false, "22.39.1002\n", "devices/%s/infiniband/%s/fw_ver", name, name);
    put(card, &error, false, "1: CA\n", "devices/%s/infiniband/%s/node_type", name, name);
    put(card, &error, true, "../..", "devices/%s/infiniband/%s/device", name, name);
    write_port(card, &error);
    const char *layer = card->is.flags & STAND_IN_INFINIBAND ? "InfiniBand\n" : "Ethernet\n";
    put(card, &error, false, layer, "devices/%s/infiniband/%s/ports/1/link_layer", name, name);
    put(card, &error, false, "100 Gb/sec (4X EDR)\n", "devices/%s/infiniband/%s/ports/1/rate", name, name);
    put(card, &error, false, "RoCE v2\n", "devices/%s/infiniband/%s/ports/1/gid_attrs/types/0", name, name);
    put(card, &error, false, "0\n", "devices/%s/infiniband/%s/ports/1/hw_counters/out_of_buffer", name, name);
    make_net_files(card, &error);

    snprintf(text, sizeof text, "../../devices/%s/infiniband/%s", name, name);
    put(card, &error, true, text, "class/infiniband/%s", name);
    snprintf(text, sizeof text, "%s\n", name);
    put(card, &error, false, text, "class/infiniband_verbs/%s/ibdev", card->ibv.dev_name);
    if (error) return error;
    snprintf(text, sizeof text, "%s/devices/%s/infiniband/%s/ports/1/hw_counters/out_of_buffer", card->sysfs, name, name);
    card->counter = open(text, O_WRONLY | O_CLOEXEC);
    return card->counter < 0 ? errno : 0;
}
