/* checkpoint.h -- what the files of checkpoint/ know of each other. */
#ifndef GRADCC_CHECKPOINT_H
#define GRADCC_CHECKPOINT_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "run.h"

enum { CK_PATH = 4096, CK_TEXT = 4096, CK_HASH_TEXT = 33 };

/* A text that grows; after a failed allocation it stays empty and failed. Saving must not end the
   program, so rt_alloc is not used here. */
typedef struct {
    char *at;
    size_t len, cap;
    bool failed;
} CkText;

__attribute__((format(printf, 2, 3))) void ck_add(CkText *t, const char *fmt, ...);
void ck_add_string(CkText *t, const char *s); /* as a JSON string */
void ck_reserve(CkText *t, size_t bytes);     /* of an empty one, its NUL included; 0: none */

typedef struct {
    char text[CK_TEXT];
} CkProblem; /* what is wrong with a file */

/* Always false, so that a check reads: return ck_wrong(..). */
__attribute__((format(printf, 2, 3))) bool ck_wrong(CkProblem *p, const char *fmt, ...);

/* The whole file, without ending the program. */
bool ck_read(const char *path, size_t limit, CkText *text, CkProblem *problem);

typedef struct { /* a tensor to be saved, or wanted */
    char *name;
    int rank;
    ptrdiff_t shape[RT_MAX_RANK];
    const char *dtype; /* "F32" */
    void *at;
    size_t bytes;
} CkTensor;

typedef struct {
    CkTensor *tensor;
    ptrdiff_t n;
} CkList; /* sorted by name */

/* ---- checkpoint.c ---------------------------------------------------------------------------- */

void ck_metadata(CkText *t, const RtModel *m, const RtCheckpoint *c); /* of a file's header */

/* ---- directory.c ----------------------------------------------------------------------------- */

#define CK_MODEL_FILE    "model.safetensors"
#define CK_STATE_FILE    "optimizer.safetensors"
#define CK_AVERAGE_FILE  "ema.safetensors"
#define CK_MANIFEST_FILE "manifest.json"

typedef struct {
    char text[CK_PATH];
} CkPath;
__attribute__((format(printf, 1, 2))) CkPath ck_path(const char *fmt, ...);

typedef struct {
    int64_t step;
    bool replaced;
    char name[64];
} CkFound;
typedef struct {
    CkFound *at;
    int n;
} CkFoundList;                              /* n < 0: not read, errno says why */
CkFoundList ck_found_list(const char *dir); /* complete checkpoints, newest first */
bool ck_missing(int error);                 /* nothing is there: no failure */
int ck_remove_directory(const char *path);  /* with its files; 0, or -1 with errno */

/* The tensors of the model: its parameters as they are kept (p NULL: names and shapes only), flat
   values of real type by the same names, or their optimizer state. false: no memory. */
bool ck_list_params(CkList *list, const RtModel *m, void *p);
bool ck_list_flat(CkList *list, const RtModel *m, void *at);
bool ck_list_state(CkList *list, const RtModel *m, const RtStateTensor *state, int n_state);
/* The one with a file of its own, if there is one; else the list is empty. */
bool ck_list_average(CkList *list, const RtModel *m, const RtStateTensor *state, int n_state);
void ck_list_free(CkList *list);

/* ---- room.c ---------------------------------------------------------------------------------- */

enum { CK_ROOM_LEAST = 1 << 16 }; /* also covers what a save takes besides */

typedef struct { /* bytes of the longest texts, with their NUL; 0: not known */
    size_t metadata, header, manifest;
} CkLengths;
extern CkLengths ck_lengths;

/* As rt_mem.alloc and free; between open and close out of one block, if rt_checkpoint_plan said how
   large. */
void *ck_alloc(size_t bytes);
void ck_free(void *at);
bool ck_room_open(void);           /* false: no memory */
void ck_room_expect(size_t bytes); /* that looking through a checkpoint took: it will be read */
void ck_room_close(void);

/* ---- safetensors.c --------------------------------------------------------------------------- */

typedef struct { /* a tensor that a file has */
    const char *name;
    const char *dtype;
    int rank; /* -1: more than RT_MAX_RANK */
    ptrdiff_t shape[RT_MAX_RANK];
    uint64_t begin, end;
    void *to;       /* where st_read puts it; NULL = nowhere */
    const char *as; /* F32 of a BF16 or the other way round: what it is there; NULL: the same */
} StTensor;

typedef struct {
    const char *path;
    int fd;
    uint64_t bytes;
    StTensor *tensor; /* by offset */
    ptrdiff_t n;
    void *json; /* keeps the names */
    XXH3_state_t *hash;
} StFile;

/* Writes the tensors; hash: 32 hex digits of XXH3-128 over the file. 0, or -1 with errno. */
void st_header(CkText *t, const CkList *list, const char *metadata); /* its JSON */
int st_write(int fd, const CkList *list, const char *metadata, uint64_t *bytes,
             char hash[CK_HASH_TEXT]);
uint64_t st_size(const CkList *list); /* bytes of data, for the check of disk space */
/* Opens a file and checks its header. */
bool st_open(StFile *f, const char *path, CkProblem *problem);
/* Reads all tensors to where .to says and gives the hash of the whole file. */
bool st_read(StFile *f, char hash[CK_HASH_TEXT], CkProblem *problem);
void st_close(StFile *f);

/* ---- manifest.c ------------------------------------------------------------------------------ */

typedef struct {
    char name[64];
    uint64_t bytes;
    char hash[CK_HASH_TEXT];
} CkFile;

enum { CK_FILES = 4 };

typedef struct {
    CkFile file[CK_FILES];
    int n_files;
    uint32_t source_crc;
    char model[256], source[256];
    RtCheckpoint c; /* vocab, config: allocated, or NULL */
} CkManifest;

bool manifest_text(CkText *t, const RtModel *m, const CkList *params, const CkManifest *manifest);
bool manifest_read(const char *path, CkManifest *manifest, CkProblem *problem);
const CkFile *manifest_file(const CkManifest *manifest, const char *name); /* or NULL */

#endif
