/* DPDK's environment: started once in a process, and what it says while it works. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_version.h>

/* The first lines that are errors since gd_listen: who noticed first says most. Which of them to show is Rust's business. */
#define LINES 8
#define LINE 200

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[LINES][LINE];
static unsigned count;
static char partial[LINE];
static size_t partial_len;

static void keep(void)
{
	size_t len = partial_len;
	const char *text = partial;

	partial[len] = 0;
	partial_len = 0;
	/* Its own name says nothing in a message about DPDK. */
	if (strncmp(text, "EAL: ", 5) == 0)
		text += 5;
	if (strncmp(text, "FATAL: ", 7) == 0)
		text += 7;
	if (*text == 0 || count == LINES)
		return;
	for (unsigned n = 0; n < count; n++)
		if (strncmp(lines[n], text, LINE - 1) == 0)
			return;
	snprintf(lines[count++], LINE, "%.*s", LINE - 1, text);
}

/* Everything that is logged comes here, whole lines mostly, and what the C library says of wrong options. */
static ssize_t write_log(void *cookie, const char *text, size_t len)
{
	int level = rte_log_cur_msg_loglevel();

	(void)cookie;
	if (level > (int)RTE_LOG_ERR)
		return (ssize_t)len;
	pthread_mutex_lock(&lock);
	for (size_t n = 0; n < len; n++) {
		if (text[n] == '\n')
			keep();
		else if (partial_len < LINE - 1)
			partial[partial_len++] = text[n];
	}
	pthread_mutex_unlock(&lock);
	return (ssize_t)len;
}

void gd_listen(void)
{
	pthread_mutex_lock(&lock);
	count = 0;
	partial_len = 0;
	pthread_mutex_unlock(&lock);
}

size_t gd_said(char *text, size_t room)
{
	size_t at = 0;

	if (room == 0)
		return 0;
	pthread_mutex_lock(&lock);
	if (partial_len > 0)
		keep();
	text[0] = 0;
	for (unsigned n = 0; n < count && at < room; n++)
		at += (size_t)snprintf(text + at, room - at, "%s%s", n > 0 ? "\n" : "", lines[n]);
	pthread_mutex_unlock(&lock);
	return at < room ? at : room - 1;
}

const char *gd_version(void)
{
	return rte_version();
}

static FILE *log_stream, *usage;
static FILE *out, *err;

/* Of a wrong option DPDK prints all that there are, and libraries beneath it what they think: none of it is for the user's
 * terminal. Rust has streams of its own, which stay as they are. The caller sees to it that nobody else is here. */
void gd_quiet(void)
{
	out = stdout;
	err = stderr;
	if (log_stream != NULL && usage != NULL) {
		stdout = usage;
		stderr = log_stream;
	}
}

void gd_loud(void)
{
	if (log_stream != NULL)
		fflush(log_stream);
	stdout = out;
	stderr = err;
}

int gd_start(int argc, char **argv)
{
	cookie_io_functions_t calls = {.write = write_log};

	/* Both stay: DPDK writes to them as long as the process lives. */
	log_stream = fopencookie(NULL, "w", calls);
	usage = fopen("/dev/null", "we");
	if (log_stream == NULL || usage == NULL)
		return -ENOMEM;
	setvbuf(log_stream, NULL, _IOLBF, BUFSIZ);
	rte_openlog_stream(log_stream);
	gd_quiet();
	if (rte_eal_init(argc, argv) < 0) {
		gd_loud();
		return -(rte_errno != 0 ? rte_errno : EINVAL);
	}
	gd_loud();
	return 0;
}

/* Where it looks for drivers by itself; empty where it was built with all of them. */
const char *gd_drivers(void)
{
#ifdef RTE_EAL_PMD_PATH
	return RTE_EAL_PMD_PATH;
#else
	return "";
#endif
}

int gd_addresses_are_virtual(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA;
}

int gd_gpus(void)
{
	return rte_gpu_count_avail();
}

int gd_thread_begin(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return -EEXIST;
	return rte_thread_register() == 0 ? 0 : -rte_errno;
}

void gd_thread_end(void)
{
	rte_thread_unregister();
}
