/* cudnn.h -- inside the simulated cuDNN: what lies in its descriptors, and one graph of operations.
 *
 * cudnn_desc.cc keeps descriptors and checks them, cudnn_graph.cc judges which graphs there is an
 * engine for, cudnn_run.cc computes them.
 */
#ifndef CUDASIM_CUDNN_INSIDE_H
#define CUDASIM_CUDNN_INSIDE_H

#include <map>
#include <vector>

#include "cuda/cudnn_api.h"

typedef struct { /* one attribute as it was set */
    int type;
    int64_t count;
    std::vector<char> bytes;
} DnAttribute;

typedef struct {
    uint32_t mark; /* DN_LIVE */
    int type;
    bool final;
    std::map<int, DnAttribute> set;
    int64_t engine, work_bytes; /* of engines, configurations and plans */
} DnDescriptor;

enum { DN_LIVE = 0x434e4c49, DN_DEAD = 0x434e4445 };

typedef struct {
    int64_t number;
    int type;
    int64_t dim[4], step[4], align;
    bool hidden, by_value;
} DnTensor;

typedef struct {
    int kind; /* CUDNN_BACKEND_OPERATION_* */
    int what; /* mode of a pointwise operation, operator of a reduction */
    int64_t axis;
    int64_t x, b, t, y; /* numbers of tensors, -1: none. Of a product a, b and c are x, b and y */
} DnOp;

typedef struct { /* a graph, read out of its descriptors */
    std::map<int64_t, DnTensor> tensors;
    std::vector<DnOp> ops;
} DnGraph;

/* One engine repeats its results, the other adds up in any order. */
enum { DN_ENGINE_ATOMIC = 0, DN_ENGINE = 5, DN_ENGINES = 20 };

/* cudnn_desc.cc */
DnDescriptor *dn_get(cudnnBackendDescriptor_t descriptor, int type); /* or a report */
/* The attribute of one value: NULL if it was not set. */
const void *dn_value(const DnDescriptor *d, int name);
DnDescriptor *dn_part(const DnDescriptor *d, int name, int type); /* or NULL */
cudnnStatus_t dn_wrong(cudnnStatus_t status, const char *why);    /* kept as the last error */

/* cudnn_graph.cc */
cudnnStatus_t dn_tensor(const DnDescriptor *d, DnTensor *to);
cudnnStatus_t dn_check_op(const DnDescriptor *d); /* do its tensors go together? */
cudnnStatus_t dn_graph(const DnDescriptor *graph, DnGraph *to);
/* Engines for a graph; work_bytes: what they work in. */
int dn_engines(const DnGraph *g, int64_t engine[DN_ENGINES], int64_t *work_bytes);
bool dn_setting(const char *name); /* is it that of CUDASIM_CUDNN? */

/* cudnn_run.cc */
void dn_run(const DnGraph *g, const std::map<int64_t, void *> &at,
            const std::map<int64_t, float> &values, void *work, int64_t work_bytes);

#endif
