/* A network card of DPDK that is not there, for tests.
 *
 * Debian's libdpdk-dev has no headers for drivers, so that this is none. It is loaded before DPDK's libraries (LD_PRELOAD), and answers the
 * calls of <rte_ethdev.h>, <rte_flow.h> and <rte_dev.h> in place of them where they are about one of its cards: four PCI devices,
 * 0000:ca:fd.0 to .3. Beneath each of them is a net_null, for what DPDK itself has to know of a port; all other calls, and those
 * about other ports, go on to DPDK. What a card receives and sends passes by the functions below and not by a network.
 *
 * As on a card with mlx5: in isolated mode frames come by rules alone, and the clock may not be read any more. Cards that are told
 * to cut frames do so in two pieces, as they are told, into memory of a GPU too.
 */
#ifndef GD_STAND_IN_CARD_H
#define GD_STAND_IN_CARD_H

#include <stddef.h>
#include <stdint.h>

#define CARDS 4

/* Sets one of these of a card; they are 0 unless it is said. 0, or -1: there is no such name.
 *   stamps       it offers time stamps
 *   clock        kHz of the clock that it lets be read; 0: none
 *   isolated     the clock can be read in isolated mode as well
 *   interface    number of the kernel's interface beneath
 *   link         its link is up; at first it is
 *   map          what letting it reach memory fails with: an errno, or -1 for a failure without one
 *   removal      it tells that it has gone by an event of the port
 *   missed, no_buffer, errors, packets   what it has counted
 *   no_rules     refuses rules
 *   splits       cuts frames in two
 *   headers      so many kinds of headers behind which it cuts, and nowhere else
 *   longer       octets by which frames are longer than their pieces, by what it says */
int card_set(unsigned card, const char *name, int64_t value);

/* One of those above, or what was done with it; -1: there is no such name.
 *   started      it runs
 *   only_rules   it is in isolated mode
 *   rules        that it has
 *   reached      octets of memory that it is let reach
 *   removal_told the event of the port was asked for when it was configured
 *   groups       of its list
 *   links        how often it was asked for its link
 *   stats        the same of what it has counted */
int64_t card_get(unsigned card, const char *name);

/* The driver that it names. */
void card_driver(unsigned card, const char *name);

/* All of the above as at first, for a card that nobody has. */
void card_reset(unsigned card);

/* A frame comes; `stamp` in ticks of its clock, 0: without. Whether it was taken: it runs, its link is up, and there is room. */
int card_feed(unsigned card, const void *frame, size_t octets, uint64_t stamp);

/* The next frame that it has sent while its link was up: how many octets, and as many of them as there is room for; 0: none. */
size_t card_sent(unsigned card, void *frame, size_t room);

/* It is pulled out: of its port, as drivers tell it, or of the machine, as vfio-pci tells it. */
void card_pull(unsigned card, int by_vfio);

#endif
