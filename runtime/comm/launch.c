/* launch.c -- who this process is: its rank, how many there are, where rank 0 is.
 *
 * In: flags, and the variables that launchers set. Out: RtLaunch. The first that matches, in this
 * order, is taken:
 *
 *     flags      --rank, --world-size
 *     torchrun   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *     MPI        variables of mpirun, or of srun with PMI: MPI itself knows the rest
 *     SLURM      SLURM_PROCID, SLURM_STEP_NUM_TASKS, and the first host of the step
 *     nobody     one rank
 *
 * Where they meet is said by --rendezvous first, whatever the variables say: HOST:PORT of rank 0,
 * or a directory, which has a '/' in it. With MPI they meet through MPI; what srun sets for it is
 * passed over where its back end is not built, or --comm gloo is given.
 *
 * A group that is set in part is an error that names what lacks: half a launch would train several
 * models side by side.
 */
#include <ctype.h>
#include <errno.h>

#include "comm/comm.h"

enum { SLURM_FIRST_PORT = 15000 };

const char *rt_launcher_name(RtLauncher by)
{
    static const char *const names[] = { "nobody", "flags", "torchrun", "MPI", "SLURM" };
    return names[by];
}

/* ---- variables ------------------------------------------------------------------------------- */

static const char *variable(const char *name) /* NULL where it is empty, too */
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* said: where the text stands, "RANK=two" */
static int number_of(const char *said, const char *text, int lo, int hi)
{
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || n < lo || n > hi)
        rt_fail(RT_EXIT_USAGE, "%s: wants a whole number from %d to %d", said, lo, hi);
    return (int)n;
}

static int variable_number(const char *name, int lo, int hi, int otherwise)
{
    const char *text = variable(name);
    return text ? number_of(rt_keep(rt_printf("%s=%s", name, text)), text, lo, hi) : otherwise;
}

/* Both or none of the two. */
static bool pair_is_set(const char *first, const char *second, const char *why)
{
    const bool a = variable(first), b = variable(second);
    if (a != b)
        rt_fail(RT_EXIT_USAGE, "%s is set and %s is not: %s\nhint: set both, or neither",
                a ? first : second, a ? second : first, why);
    return a;
}

/* ---- where rank 0 is ------------------------------------------------------------------------- */

static void set_address(RtLaunch *l, const char *text)
{
    l->named_by = "--rendezvous names it";
    if (strchr(text, '/') && !strstr(text, "://")) {
        l->dir = text;
        return;
    }
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (!colon || n == 0 || !colon[1] || strchr(text, '/'))
        rt_fail(RT_EXIT_USAGE,
                "--rendezvous %s: wants HOST:PORT, as in node1:29500 or [::1]:29500, or a "
                "directory with a '/' in it, as in ./meet",
                text);
    l->port = number_of(rt_keep(rt_printf("--rendezvous %s", text)), colon + 1, 1, 65535);
    if (text[0] == '[' && text[n - 1] == ']')
        text++, n -= 2;
    l->host = rt_keep(rt_printf("%.*s", (int)n, text));
}

static void set_master(const RtOptions *o, RtLaunch *l)
{
    if (o->rendezvous) {
        set_address(l, o->rendezvous);
        return;
    }
    if (!pair_is_set("MASTER_ADDR", "MASTER_PORT", "the address of rank 0 is half known"))
        return;
    l->named_by = "MASTER_ADDR and MASTER_PORT name it";
    l->host = variable("MASTER_ADDR");
    l->port = variable_number("MASTER_PORT", 1, 65535, 0);
    /* torchrun's agent serves PyTorch's own store there */
    const char *agent = variable("TORCHELASTIC_USE_AGENT_STORE");
    l->next_port = agent && (strcmp(agent, "True") == 0 || strcmp(agent, "1") == 0);
}

/* The first host of a list as SLURM writes it: "a[05-09,12],b" is a05. */
static const char *first_host(const char *list)
{
    const char *comma = strchr(list, ','), *open = strchr(list, '[');
    if (!open || (comma && comma < open))
        return rt_keep(rt_printf("%.*s", comma ? (int)(comma - list) : (int)strlen(list), list));
    const size_t digits = strspn(open + 1, "0123456789");
    return rt_keep(rt_printf("%.*s%.*s", (int)(open - list), list, (int)digits, open + 1));
}

static void set_slurm_address(const RtOptions *o, RtLaunch *l)
{
    const char *hosts = variable("SLURM_STEP_NODELIST"), *job = variable("SLURM_JOB_ID");
    set_master(o, l);
    if (l->host || l->dir)
        return;
    hosts = hosts ? hosts : variable("SLURM_JOB_NODELIST");
    if (!hosts || !job)
        rt_fail(RT_EXIT_USAGE,
                "SLURM_PROCID is set, and neither MASTER_ADDR nor SLURM_STEP_NODELIST and "
                "SLURM_JOB_ID\nhint: set MASTER_ADDR and MASTER_PORT to the host of rank 0 and a "
                "free port there");
    const size_t n = strlen(job), digits = n < 4 ? n : 4; /* jobs of a host differ in them */
    l->named_by = "SLURM's list of hosts names it";
    l->host = first_host(hosts);
    l->port = SLURM_FIRST_PORT + (int)strtol(job + n - digits, NULL, 10);
    l->next_port = true;
}

/* ---- launchers ------------------------------------------------------------------------------- */

static void check_rank(const RtLaunch *l, const char *rank, const char *size)
{
    if (l->rank >= l->size)
        rt_fail(RT_EXIT_USAGE, "%s is %d and %s is %d: ranks are numbered from 0 to %d", rank,
                l->rank, size, l->size, l->size - 1);
}

static void need_address(const RtLaunch *l, const char *how)
{
    if (l->size > 1 && !l->host && !l->dir)
        rt_fail(RT_EXIT_USAGE, "%d ranks, and nothing says where rank 0 is\nhint: %s", l->size,
                how);
}

/* A flag and a variable that say the same thing must agree. */
static void check_against(const char *flag, int64_t value, const char *name)
{
    const int other = variable_number(name, 0, RT_MAX_RANKS, (int)value);
    if (other != value)
        rt_fail(RT_EXIT_USAGE, "--%s is %lld and %s is %d\nhint: leave one of them out", flag,
                (long long)value, name, other);
}

static bool by_flags(const RtOptions *o, RtLaunch *l)
{
    if (o->rank < 0 && o->world_size < 0) {
        if (o->local_rank >= 0)
            rt_fail(RT_EXIT_USAGE, "--local-rank goes with --rank and --world-size");
        return false;
    }
    if (o->rank < 0 || o->world_size < 0)
        rt_fail(RT_EXIT_USAGE, "--%s is given and --%s is not\nhint: give both, or neither",
                o->rank < 0 ? "world-size" : "rank", o->rank < 0 ? "rank" : "world-size");
    l->rank = (int)o->rank;
    l->size = (int)o->world_size;
    check_rank(l, "--rank", "--world-size");
    check_against("rank", o->rank, "RANK");
    check_against("world-size", o->world_size, "WORLD_SIZE");
    set_master(o, l);
    need_address(l,
                 "give --rendezvous HOST:PORT, of the host of rank 0 and a free port there, or a "
                 "directory that hosts share");
    l->by = RT_BY_FLAGS;
    return true;
}

static bool by_torchrun(const RtOptions *o, RtLaunch *l)
{
    if (!pair_is_set("RANK", "WORLD_SIZE", "which of how many ranks this is"))
        return false;
    l->rank = variable_number("RANK", 0, RT_MAX_RANKS - 1, 0);
    l->size = variable_number("WORLD_SIZE", 1, RT_MAX_RANKS, 1);
    check_rank(l, "RANK", "WORLD_SIZE");
    set_master(o, l);
    need_address(l, "set MASTER_ADDR and MASTER_PORT to the host of rank 0 and a free port there");
    l->local_rank = variable_number("LOCAL_RANK", 0, RT_MAX_RANKS - 1, -1);
    l->local_size = variable_number("LOCAL_WORLD_SIZE", 1, RT_MAX_RANKS, -1);
    l->by = RT_BY_TORCHRUN;
    return true;
}

/* srun has started this process itself, not an mpirun whose helpers it started. */
static bool is_of_srun(void)
{
    const char *rank = variable("PMIX_RANK"), *task = variable("SLURM_PROCID");
    rank = rank ? rank : variable("PMI_RANK");
    return variable("SLURM_STEP_ID") && rank && task && strcmp(rank, task) == 0
           && !variable("OMPI_COMM_WORLD_SIZE") && !variable("MPI_LOCALNRANKS");
}

static bool by_mpi(const RtOptions *o, RtLaunch *l)
{
    static const char *const sizes[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS" };
    bool found = variable("PMIX_RANK") || variable("PMI_PORT") || variable("PMI_RANK");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        found = found || variable(sizes[i]);
    if (found && is_of_srun() && (strcmp(o->comm, "gloo") == 0 || !rt_comm_has("mpi")))
        found = false;
    if (found) {
        l->by = RT_BY_MPI;
        l->named_by = "MPI told it";
        l->rank = l->size = -1;
    }
    return found;
}

/* The variable that says how many tasks the step has; NULL: none does. */
static const char *slurm_size(void)
{
    static const char *const names[] = { "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (variable(names[i]))
            return names[i];
    return NULL;
}

static bool by_slurm(const RtOptions *o, RtLaunch *l)
{
    const char *size = slurm_size();
    const bool step = variable("SLURM_STEP_ID"), rank = variable("SLURM_PROCID");
    if (step && rank && !size)
        rt_fail(RT_EXIT_USAGE,
                "SLURM_PROCID and SLURM_STEP_ID are set, and SLURM_STEP_NUM_TASKS, SLURM_NTASKS "
                "and SLURM_NPROCS are not: of how many ranks this is one\nhint: set one of them, "
                "or unset SLURM_STEP_ID to train alone");
    l->size = step && size ? variable_number(size, 1, RT_MAX_RANKS, 1) : 1;
    if (l->size < 2) /* or the shell of sbatch or salloc */
        return false;
    if (!rank)
        rt_fail(RT_EXIT_USAGE,
                "SLURM_STEP_ID and %s are set and SLURM_PROCID is not: which of the ranks this "
                "is\nhint: set it, or unset SLURM_STEP_ID to train alone",
                size);
    l->rank = variable_number("SLURM_PROCID", 0, RT_MAX_RANKS - 1, 0);
    l->local_rank = variable_number("SLURM_LOCALID", 0, RT_MAX_RANKS - 1, -1);
    check_rank(l, "SLURM_PROCID", size);
    set_slurm_address(o, l);
    l->by = RT_BY_SLURM;
    return true;
}

/* ---- the name of the job --------------------------------------------------------------------- */

/* ID.STEP-HOST:PORT/RESTART, what is known of it, by the same texts on all ranks. Torchrun's agents
   may all be called "none", and their ports be neighbours: the address tells them apart. */
static void name_job(RtLaunch *l)
{
    const char *id = variable("TORCHELASTIC_RUN_ID"), *again, *step = NULL;
    const char *host = l->next_port ? l->host : NULL;
    char address[80] = "", port[8];
    snprintf(port, sizeof port, "%d", l->port);
    const char *at = port;
    if (l->dir && id && variable("MASTER_PORT")) {
        host = variable("MASTER_ADDR");
        at = variable("MASTER_PORT");
    }
    if (host)
        snprintf(address, sizeof address, "-%.64s:%.8s", host, at);
    id = id ? id : variable("SLURM_JOB_ID");
    if (l->by == RT_BY_SLURM)
        step = variable("SLURM_STEP_ID");
    again = variable("TORCHELASTIC_RESTART_COUNT");
    again = again ? again : variable("SLURM_RESTART_COUNT");
    snprintf(l->job, sizeof l->job, "%.64s%s%.12s%s/%.16s", id ? id : "-", step ? "." : "",
             step ? step : "", address, again ? again : "0");
}

RtLaunch rt_launch_find(const RtOptions *o)
{
    RtLaunch l = { .size = 1, .local_rank = -1, .local_size = -1 };
    if (!by_flags(o, &l) && !by_torchrun(o, &l) && !by_mpi(o, &l) && !by_slurm(o, &l))
        (void)pair_is_set("MASTER_ADDR", "MASTER_PORT", "the address of rank 0 is half known");
    if (o->rendezvous && l.by == RT_BY_NOBODY)
        rt_fail(RT_EXIT_USAGE, "--rendezvous goes with --rank and --world-size, or variables of "
                               "torchrun or SLURM");
    if (o->rendezvous && l.by == RT_BY_MPI)
        rt_fail(RT_EXIT_USAGE,
                "--rendezvous %s: ranks started by MPI meet through MPI\nhint: leave it out",
                o->rendezvous);
    if (o->local_rank >= 0)
        l.local_rank = (int)o->local_rank;
    name_job(&l);
    return l;
}
