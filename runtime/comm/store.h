/* store.h -- what the two ends of the store say to each other. For store*.c only.
 *
 * A message is a frame, then its key, then its value. Hosts are little-endian, as all that gradcc
 * runs on are.
 */
#ifndef GRADCC_STORE_H
#define GRADCC_STORE_H

#include "comm/comm.h"

enum {
    STORE_MAGIC = 0x74736367, /* "gcst" */
    STORE_VERSION = 3,
    STORE_KEY = 256, /* most bytes */
    STORE_VALUE = 64 << 20,
};

typedef enum {
    STORE_HELLO,   /* value: StoreHello. Answered when all ranks have said it: int32_t, how many of
                      them are on that host */
    STORE_WATCH,   /* the same, of the connection that beats */
    STORE_SET,     /* key, value */
    STORE_GET,     /* key, value: double, seconds that it may take. Answered when it is there. A key
                      ends with the rank that sets it, or it is one of rank 0 */
    STORE_BEAT,    /* value: int64_t, exchanges begun */
    STORE_FAIL,    /* value: exit code, text */
    STORE_STALLED, /* value: int64_t, text */
    STORE_WARN,    /* value: text. Not answered */
    STORE_BYE,
    STORE_HEARD,  /* to HELLO: somebody who knows the store is there; an answer follows */
    STORE_AWAY,   /* to a stranger, exit code and text: this is the store of another job */
    STORE_OK,     /* an answer; of GET with the value */
    STORE_FAILED, /* an answer: the job ends with the value, exit code and text */
} StoreOp;

typedef struct {
    uint32_t magic;
    uint16_t version, op;
    uint64_t job; /* hash of its name */
    int32_t rank, size;
    uint32_t key, value; /* bytes of them */
} StoreFrame;

typedef struct {
    char host[64], job[192];
    int64_t process;
} StoreHello;

uint64_t store_job(const char *name);
StoreHello store_hello(const RtLaunch *l); /* of this process */
/* Ports at which rank 0 may be. Ends the program where there is none. */
typedef struct {
    int first, last;
} StorePorts;
StorePorts store_ports(const RtLaunch *l);
const char *store_ports_text(const RtLaunch *l, char text[48]); /* "port 29500" */
/* Rank 0 cannot listen at that port: ends the program where a store of its own job is there. */
void store_is_there(const RtLaunch *l, int port);
void store_room(void); /* as many connections as this process may have */

#endif
