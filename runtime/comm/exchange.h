/* exchange.h -- between comm.c, which opens and closes, and exchange.c. For these two only. */
#ifndef GRADCC_EXCHANGE_H
#define GRADCC_EXCHANGE_H

#include "comm/comm.h"
#include "wire/wire.h"

struct RtComm {
    void *group; /* of the back end; NULL = the world */
    int rank, size;
};

/* The thread that makes exchanges by this back end; timeout: seconds that one may take;
   narrow: gradients of fp32 go in bf16. */
void exchange_start(const RtWire *wire, RtComm world, double timeout, bool narrow);
void exchange_stop(void); /* all are done */

#endif
