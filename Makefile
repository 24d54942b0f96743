# gradcc: build, demo, tests, benchmarks, installation.
#
#   make            the compiler (build/gradcc) and the runtime library
#   make demo       installs what is missing, builds, trains a small GPT on text and prints a sample
#   make test       installs what is missing, builds, runs all tests
#   make test-long  the tests that train for minutes
#   make bench      side by side with PyTorch where it is installed (BENCH=name for one)
#   make install    PREFIX=/usr/local DESTDIR=
#
# Variables: BUILD (folder of outputs), CC, MARCH (native), ONEDNN=0 (build without it), CUDA=0
# (leave the runtime of GPUs out, which takes nvcc minutes), NVCC, MPI=0 and GLOO=0 (leave these
# back ends out), MPICC (which MPI; mpicc), SAN=1 (address and undefined-behaviour sanitizers; no
# CUDA), DATA=file (text of the demo), WERROR= (warnings of a compiler that we do not know are no
# errors).

BUILD  ?= build
# Absolute, so that one folder has one name in the rules that the compiler leaves there (.d).
override BUILD := $(if $(word 2,$(CURDIR)),$(BUILD),$(abspath $(BUILD)))
PREFIX ?= /usr/local
DESTDIR ?=
MARCH  ?= native
CC     := $(if $(filter default,$(origin CC)),gcc,$(CC))

PACKAGES = gcc g++ make flex bison libjansson-dev libxxhash-dev zlib1g-dev libcmocka-dev \
           libdnnl-dev libopenmpi-dev openmpi-bin libgloo-dev iproute2 procps clang clang-format \
           python3

WERROR  ?= -Werror
WARN     = -Wall -Wextra -Wshadow -Wconversion $(WERROR)
SANFLAGS = $(if $(SAN),-fsanitize=address$(,)undefined -fno-sanitize-recover=all \
           -fno-omit-frame-pointer)
,        := ,
VERSION  = 0.1

# One short line per file; V=1 shows the commands.
say = $(if $(V),,@echo '  $(1)  $(patsubst $(BUILD)/%,%,$(2))' && )

# ---- what is here: probes compile and link ----------------------------------------------------

probe = $(shell printf '\043include <$(1)>\nint main(void) { return $(2); }\n' | \
          $(CC) -x c - -o /dev/null $(3) 2>/dev/null && echo 1)
ifneq ($(ONEDNN),0)
HAVE_ONEDNN := $(call probe,oneapi/dnnl/dnnl.h,dnnl_version() == 0,-ldnnl)
endif

# The CUDA toolkit: an nvcc of C++20, and headers that have cuBLASLt, which a program loads when it
# needs it. An nvcc that was found good is not asked again until its file changes.
CU_CODE = -std=c++20 -gencode arch=compute_80,code=sm_80 \
          -gencode arch=compute_90,code=[sm_90$(,)compute_90]
CU_PROBE = template <typename T> concept Small = sizeof(T) < 9;\n \
           template <Small T> __global__ void g(T *x) { *x = T{ 1 }; }\n \
           int main() { g<<<1, 1>>>((int *)0); }\n
CUDA ?= $(if $(SAN),0,auto)
ifneq ($(CUDA),0)
NVCC      := $(or $(NVCC),$(shell PATH="$$PATH:$${CUDA_HOME:-/usr/local/cuda}/bin" \
               command -v nvcc))
NVCC_FILE := $(realpath $(shell command -v $(NVCC)))
CUDA_HOME := $(patsubst %/bin/,%,$(dir $(NVCC_FILE)))
HAVE_LT   := $(and $(NVCC_FILE),$(shell printf '\043include <cublasLt.h>\n' | \
               $(CC) -x c - -fsyntax-only -I$(CUDA_HOME)/include 2>/dev/null && echo 1))
NVCC_IS   := $(and $(HAVE_LT),$(NVCC) $(CU_CODE) $(shell stat -c '%Y %s' $(NVCC_FILE)))
HAVE_CUDA := $(and $(HAVE_LT),$(shell mkdir -p $(BUILD); cd $(BUILD); \
               grep -sqxF '$(NVCC_IS)' nvcc.good || { printf '$(CU_PROBE)' > nvcc.cu; \
               $(NVCC) $(CU_CODE) -c -o /dev/null nvcc.cu > nvcc.said 2>&1 && \
               echo '$(NVCC_IS)' > nvcc.good; } && echo 1))
endif
ifeq ($(CUDA),0)
CUDA_FOUND = CUDA is left out, as told: no libgradcc_rt_cuda.a
else ifneq ($(HAVE_CUDA),)
CUDA_FOUND = CUDA by $(NVCC): libgradcc_rt_cuda.a too, for sm_80, sm_90 and PTX
else ifneq ($(HAVE_LT),)
CUDA_FOUND = CUDA is left out: $(NVCC) does not compile C++20 for sm_80 and sm_90, as that of \
             CUDA 12.0 and later does; $(BUILD)/nvcc.said has its words
else ifneq ($(NVCC_FILE),)
CUDA_FOUND = CUDA is left out: $(CUDA_HOME)/include has no cublasLt.h
else ifneq ($(NVCC),)
CUDA_FOUND = CUDA is left out: there is no program $(NVCC)
else
CUDA_FOUND = CUDA is left out: no nvcc in PATH or $(or $(CUDA_HOME),/usr/local/cuda)/bin
endif

# What ranks exchange sums with: a library of its own for each, loaded when it is needed.
ifneq ($(MPI),0)
MPICC    := $(or $(MPICC),mpicc)
MPI_CC    = OMPI_CC=$(CC) MPICH_CC=$(CC) $(MPICC)
HAVE_MPI := $(shell printf '\043include <mpi.h>\nint main(void) { return MPI_Finalize(); }\n' | \
              $(MPI_CC) -x c - -o /dev/null 2>/dev/null && echo 1)
endif
ifeq ($(MPI),0)
MPI_FOUND = MPI is left out, as told: no libgradcc_mpi.so
else ifneq ($(HAVE_MPI),)
MPI_FOUND = MPI by $(MPICC): libgradcc_mpi.so
else ifneq ($(shell command -v $(MPICC)),)
MPI_FOUND = MPI is left out: $(MPICC) does not compile and link a program of MPI
else
MPI_FOUND = MPI is left out: there is no program $(MPICC)
endif
ifneq ($(GLOO),0)
HAVE_GLOO := $(shell printf '\043include <gloo/config.h>\nint main() {}\n' | \
               $(CXX) -x c++ - -o /dev/null -lgloo 2>/dev/null && echo 1)
endif
ifeq ($(GLOO),0)
GLOO_FOUND = Gloo is left out, as told: no libgradcc_gloo.so
else ifneq ($(HAVE_GLOO),)
GLOO_FOUND = Gloo: libgradcc_gloo.so
else
GLOO_FOUND = Gloo is left out: $(CXX) finds no gloo/config.h, or no libgloo to link with
endif
WIRES = $(if $(HAVE_MPI),$(BUILD)/libgradcc_mpi.so) $(if $(HAVE_GLOO),$(BUILD)/libgradcc_gloo.so)

RT_LIBS = $(if $(HAVE_ONEDNN),-ldnnl) -ljansson -lz -lm -ldl -fopenmp
CU_LIBS = -ljansson -lz -lgomp -ldl -lm

# ---- sources ----------------------------------------------------------------------------------

CC_SRC  := $(sort $(wildcard compiler/*.c compiler/*/*.c))
RT_SRC  := $(filter-out runtime/wire/%,$(sort $(wildcard runtime/*/*.c)))
ifeq ($(HAVE_ONEDNN),)
RT_SRC  := $(filter-out runtime/cpu/matmul_onednn.c,$(RT_SRC))
endif
# What a GPU has instead of runtime/cpu; the rest of the runtime is the same.
CU_SRC  := $(if $(HAVE_CUDA),$(sort $(wildcard runtime/cuda/*.cu)))
CC_OBJ  := $(CC_SRC:%.c=$(BUILD)/%.o) $(BUILD)/grammar/parser.o $(BUILD)/grammar/lexer.o
RT_OBJ  := $(RT_SRC:%.c=$(BUILD)/%.o)
CU_OBJ  := $(CU_SRC:%.cu=$(BUILD)/%.o)
INCLUDE := $(patsubst runtime/%,$(BUILD)/include/%,runtime/rt.h runtime/num.h runtime/half.h) \
           $(patsubst runtime/cuda/%,$(BUILD)/include/%,$(wildcard runtime/cuda/rt_*.h))

CC_FLAGS = -std=c11 -D_GNU_SOURCE -O2 -g $(WARN) $(SANFLAGS) -Icompiler -I$(BUILD)/grammar -MMD -MP
RT_FLAGS = -std=c11 -D_GNU_SOURCE $(if $(SAN),-O1,-O3) -g -march=$(MARCH) -fopenmp \
           -ffp-contract=off -fno-math-errno -fno-trapping-math $(WARN) $(SANFLAGS) \
           $(if $(HAVE_ONEDNN),-DHAVE_ONEDNN) -Iruntime -MMD -MP
CU_FLAGS = $(CU_CODE) -O3 --fmad=false -lineinfo -Iruntime -Iruntime/cuda -Iruntime/cuda/ptx \
           $(if $(WERROR),-Werror all-warnings) \
           -Xcompiler -Wall$(,)-Wextra$(,)-Wno-missing-field-initializers -MMD -MP
GEN_FLAGS = -Wno-unused-function -Wno-sign-conversion -Wno-conversion -Wno-sign-compare

.PHONY: all deps demo test test-long bench bless same asan install uninstall format clean always
all: $(BUILD)/cuda.txt $(BUILD)/mpi.txt $(BUILD)/gloo.txt $(BUILD)/gradcc \
     $(BUILD)/libgradcc_rt.a $(BUILD)/rt.libs $(INCLUDE) $(BUILD)/prelude.model $(WIRES) \
     $(if $(HAVE_CUDA),$(BUILD)/libgradcc_rt_cuda.a $(BUILD)/rt_cuda.libs)

say_found = @mkdir -p $(@D); \
            echo '$(1)' | cmp -s - $@ || { echo '$(1)'; echo '$(1)' > $@; }

# Says once what was found; a library that an earlier make built is no longer there without it.
$(BUILD)/cuda.txt: always
	$(call say_found,$(CUDA_FOUND))
	@$(if $(HAVE_CUDA),:,rm -f $(BUILD)/libgradcc_rt_cuda.a $(BUILD)/rt_cuda.libs)

$(BUILD)/mpi.txt: always
	$(call say_found,$(MPI_FOUND))
	@$(if $(HAVE_MPI),:,rm -f $(BUILD)/libgradcc_mpi.so)

$(BUILD)/gloo.txt: always
	$(call say_found,$(GLOO_FOUND))
	@$(if $(HAVE_GLOO),:,rm -f $(BUILD)/libgradcc_gloo.so)

$(BUILD)/gradcc: $(CC_OBJ)
	$(call say,link,$@)$(CC) $(SANFLAGS) -o $@ $^ -lm -ldl

$(BUILD)/libgradcc_rt.a: $(RT_OBJ)
	@rm -f $@
	$(call say,ar  ,$@)ar rcs $@ $^

$(BUILD)/libgradcc_rt_cuda.a: $(filter-out $(BUILD)/runtime/cpu/%,$(RT_OBJ)) $(CU_OBJ)
	@rm -f $@
	$(call say,ar  ,$@)ar rcs $@ $^

$(BUILD)/libgradcc_mpi.so: runtime/wire/mpi.c runtime/wire/wire.h $(BUILD)/mpi.txt
	@mkdir -p $(@D)
	$(call say,mpi ,$<)$(MPI_CC) -std=c11 -O2 -g -fPIC -shared $(WARN) $(SANFLAGS) \
	    -Iruntime -o $@ $<

$(BUILD)/libgradcc_gloo.so: runtime/wire/gloo.cc runtime/wire/wire.h
	@mkdir -p $(@D)
	$(call say,c++ ,$<)$(CXX) -std=c++17 -O2 -g -fPIC -shared -Wall -Wextra \
	    $(WERROR) $(SANFLAGS) -Iruntime -o $@ $< -lgloo

# What an emitted program is linked with besides the runtime; gradcc reads it.
$(BUILD)/rt.libs: Makefile
	@mkdir -p $(@D)
	@echo '$(strip $(RT_LIBS) $(SANFLAGS))' > $@

$(BUILD)/rt_cuda.libs: Makefile
	@mkdir -p $(@D)
	@echo '$(strip $(CU_LIBS))' > $@

# Beside the binary, so that gradcc finds them wherever the build folder lies.
$(BUILD)/include/%.h: runtime/%.h
	@mkdir -p $(@D)
	@cp $< $@

$(BUILD)/include/%.h: runtime/cuda/%.h
	@mkdir -p $(@D)
	@cp $< $@

$(BUILD)/prelude.model: models/prelude.model
	@mkdir -p $(@D)
	@cp $< $@

$(BUILD)/compiler/%.o: compiler/%.c | $(BUILD)/grammar/parser.h
	@mkdir -p $(@D)
	$(call say,cc  ,$<)$(CC) $(CC_FLAGS) -DGRADCC_VERSION='"$(VERSION)"' -c -o $@ $<

$(BUILD)/runtime/%.o: runtime/%.c
	@mkdir -p $(@D)
	$(call say,cc  ,$<)$(CC) $(RT_FLAGS) -c -o $@ $<

$(BUILD)/runtime/cuda/%.o: runtime/cuda/%.cu
	@mkdir -p $(@D)
	$(call say,nvcc,$<)$(NVCC) $(CU_FLAGS) -Xptxas -v -c -o $@ $< 2> $@.ptxas || \
	    { grep -v '^ptxas info' $@.ptxas >&2; exit 1; }

$(BUILD)/grammar/parser.c $(BUILD)/grammar/parser.h &: grammar/parser.y
	@mkdir -p $(@D)
	$(call say,gen ,$<)bison -Wall -Wcounterexamples -Werror -d -o $(BUILD)/grammar/parser.c $<

$(BUILD)/grammar/lexer.c $(BUILD)/grammar/lexer.h &: grammar/lexer.l
	@mkdir -p $(@D)
	$(call say,gen ,$<)flex -o $(BUILD)/grammar/lexer.c --header-file=$(BUILD)/grammar/lexer.h $<

$(BUILD)/grammar/%.o: $(BUILD)/grammar/%.c $(BUILD)/grammar/parser.h $(BUILD)/grammar/lexer.h
	$(call say,cc  ,$<)$(CC) $(CC_FLAGS) $(GEN_FLAGS) -Igrammar -c -o $@ $<

-include $(CC_OBJ:.o=.d) $(RT_OBJ:.o=.d) $(CU_OBJ:.o=.d)

# ---- dependencies: installs what is missing on Debian and Ubuntu --------------------------------

deps:
	@missing=; for p in $(PACKAGES); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || \
	        missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	echo "installing:$$missing"; \
	command -v apt-get >/dev/null || \
	    { echo "no apt-get here: please install the packages above"; exit 1; }; \
	$$sudo apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive $$sudo \
	    apt-get install -y -qq --no-install-recommends $$missing >/dev/null

# ---- demo, tests, benchmarks --------------------------------------------------------------------

demo: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@BUILD=$(BUILD) tests/demo.sh $(if $(DATA),'$(subst ','\'',$(DATA))')

test: deps
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@BUILD=$(BUILD) CC=$(CC) tests/run.sh

test-long: all
	@BUILD=$(BUILD) CC=$(CC) tests/run.sh long

bless: all
	@BUILD=$(BUILD) CC=$(CC) BLESS=1 tests/run.sh syntax errors lower emit pass

bench: all
	@BUILD=$(BUILD) tests/bench/run.sh $(BENCH)

same: all
	@BUILD=$(BUILD) tests/same.sh $(BASE)

asan:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan SAN=1 MARCH=$(MARCH) all

format:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cc' | grep -v '^tests/emit/')

install: all
	install -D -m 755 $(BUILD)/gradcc $(DESTDIR)$(PREFIX)/bin/gradcc
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include/gradcc $(INCLUDE)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/gradcc $(BUILD)/libgradcc_rt.a $(BUILD)/rt.libs \
	        $(WIRES) $(if $(HAVE_CUDA),$(BUILD)/libgradcc_rt_cuda.a $(BUILD)/rt_cuda.libs)
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/gradcc models/prelude.model
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/gradcc/models \
	        $(filter-out models/prelude.model,$(wildcard models/*.model)) models/digits.csv.gz

uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/bin/gradcc $(DESTDIR)$(PREFIX)/include/gradcc \
	       $(DESTDIR)$(PREFIX)/lib/gradcc $(DESTDIR)$(PREFIX)/share/gradcc

clean:
	rm -rf $(BUILD)
