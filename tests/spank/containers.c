/*
 * A SPANK plugin for the tests: Slurm learns the options of pyxis and --segment, and what each task is given is
 * written down. No container is started, but for one folder, which stands for the files of the image: the tasks that a
 * step has on a node see one of their own there, empty at first, and gone with the step.
 *
 * Names and conflicts are those of pyxis 0.2x (its README and the messages of its args.c); Slurm has --segment since
 * 23.11, Debian 12 has 22.05. Arguments of the plugin: the folder for the records, the folder that stands for the
 * image's files, the folder in which each node has what containers wrote. A task's record is the file
 * JOB.STEP.TASK, lines of NAME=VALUE in the order of the table below.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(shardplan_containers, 1)

#define VALUE_BYTES 16384
/* The step that runs the batch script itself (slurm.h: SLURM_BATCH_SCRIPT). */
#define BATCH_STEP 0xfffffffbU

enum {
	IMAGE,
	MOUNTS,
	WORKDIR,
	NAME,
	SAVE,
	MOUNT_HOME,
	NO_MOUNT_HOME,
	REMAP_ROOT,
	NO_REMAP_ROOT,
	ENTRYPOINT,
	NO_ENTRYPOINT,
	ENTRYPOINT_LOG,
	WRITABLE,
	READONLY,
	ENV,
	SEGMENT,
	OPTIONS
};

static int take(int option, const char *value, int remote);

static struct spank_option options[] = {
	{ "container-image", "IMAGE", "image of the container", 1, IMAGE, take },
	{ "container-mounts", "SRC:DST[:FLAGS][,...]", "what is mounted where", 1, MOUNTS, take },
	{ "container-workdir", "PATH", "working directory", 1, WORKDIR, take },
	{ "container-name", "NAME", "name under which the container is kept", 1, NAME, take },
	{ "container-save", "PATH", "file for the container's state", 1, SAVE, take },
	{ "container-mount-home", NULL, "mount the home directory", 0, MOUNT_HOME, take },
	{ "no-container-mount-home", NULL, "leave the home directory out", 0, NO_MOUNT_HOME, take },
	{ "container-remap-root", NULL, "be root inside", 0, REMAP_ROOT, take },
	{ "no-container-remap-root", NULL, "be oneself inside", 0, NO_REMAP_ROOT, take },
	{ "container-entrypoint", NULL, "run the entry point", 0, ENTRYPOINT, take },
	{ "no-container-entrypoint", NULL, "leave the entry point out", 0, NO_ENTRYPOINT, take },
	{ "container-entrypoint-log", NULL, "show what the entry point prints", 0, ENTRYPOINT_LOG, take },
	{ "container-writable", NULL, "the root filesystem can be written", 0, WRITABLE, take },
	{ "container-readonly", NULL, "the root filesystem can't be written", 0, READONLY, take },
	{ "container-env", "NAME[,NAME...]", "variables that win over the image's", 1, ENV, take },
	{ "segment", "NODES", "nodes that share a block (topology/block)", 1, SEGMENT, take },
};

static char given[OPTIONS][VALUE_BYTES];
static int is_given[OPTIONS];
static char folder[PATH_MAX];
static char image[PATH_MAX];
static char nodes[PATH_MAX];

/* The option that says the opposite, or -1. */
static int opposite(int option)
{
	switch (option) {
	case MOUNT_HOME: case REMAP_ROOT: case ENTRYPOINT: case WRITABLE:
		return option + (option == WRITABLE ? READONLY - WRITABLE : 1);
	case NO_MOUNT_HOME: case NO_REMAP_ROOT: case NO_ENTRYPOINT: case READONLY:
		return option - 1;
	default:
		return -1;
	}
}

/* Whether each mount is SRC[:DST[:FLAGS]] with paths from `.` or `/`; a source may also be tmpfs or umount. */
static int mounts_are_good(const char *value)
{
	char copy[VALUE_BYTES];
	char *rest = copy, *mount;

	snprintf(copy, sizeof(copy), "%s", value);
	while ((mount = strsep(&rest, ",")) != NULL) {
		char *source = strsep(&mount, ":");
		char *target = strsep(&mount, ":");
		int is_word = !strcmp(source, "tmpfs") || !strcmp(source, "umount");

		if (*source != '.' && *source != '/' && !is_word)
			return 0;
		if (target == NULL ? is_word : *target != '.' && *target != '/')
			return 0;
	}
	return 1;
}

static int take(int option, const char *value, int remote)
{
	const char *name = options[option].name;
	int other = opposite(option);

	(void)remote;
	if (options[option].has_arg && (value == NULL || *value == '\0' || *value == ':')) {
		slurm_error("containers: --%s: a value is missing", name);
		return -1;
	}
	if (value == NULL)
		value = "";
	if (strlen(value) >= VALUE_BYTES || strchr(value, '\n') != NULL) {
		slurm_error("containers: --%s: the value is too long or has several lines", name);
		return -1;
	}
	if (other >= 0 && is_given[other]) {
		slurm_error("containers: both --%s and --%s were given", name, options[other].name);
		return -1;
	}
	if (option == SEGMENT && strtol(value, NULL, 10) <= 0) {
		slurm_error("containers: --segment: %s is no number of nodes", value);
		return -1;
	}
	if (option == MOUNTS && !mounts_are_good(value)) {
		slurm_error("containers: --container-mounts: %s is not SRC:DST[:FLAGS]", value);
		return -1;
	}
	/* Slurm may hand over one value twice, so only another one is a mistake. Mounts add up. */
	if (is_given[option] && strcmp(given[option], value) != 0) {
		size_t length = strlen(given[option]);

		if (option != MOUNTS || length + 1 + strlen(value) >= VALUE_BYTES) {
			slurm_error("containers: --%s was given several times", name);
			return -1;
		}
		snprintf(given[option] + length, VALUE_BYTES - length, ",%s", value);
		return 0;
	}
	snprintf(given[option], VALUE_BYTES, "%s", value);
	is_given[option] = 1;
	return 0;
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
	if (argc != 3) {
		slurm_error("containers: plugstack.conf must name the folders for records, image and nodes");
		return -1;
	}
	snprintf(folder, sizeof(folder), "%s", argv[0]);
	snprintf(image, sizeof(image), "%s", argv[1]);
	snprintf(nodes, sizeof(nodes), "%s", argv[2]);
	if (spank_context() == S_CTX_SLURMD || spank_context() == S_CTX_JOB_SCRIPT)
		return 0;
	for (int option = 0; option < OPTIONS; option++)
		if (spank_option_register(spank, &options[option]) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

/* What the step has on this node in place of the image's files. */
static int open_container(uint32_t job, uint32_t step)
{
	char host[256] = "", path[2 * PATH_MAX];

	gethostname(host, sizeof(host) - 1);
	snprintf(path, sizeof(path), "%s/%s/%u.%u", nodes, host, job, step);
	if (mkdir(path, 0755) != 0 && errno != EEXIST) {
		slurm_error("containers: cannot make %s: %m", path);
		return -1;
	}
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount(path, image, NULL, MS_BIND, NULL) != 0) {
		slurm_error("containers: cannot mount %s: %m", path);
		return -1;
	}
	return 0;
}

int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
	uint32_t job = 0, step = 0, task = 0;
	char path[PATH_MAX + 64];
	FILE *file;

	(void)argc;
	(void)argv;
	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_JOB_STEPID, &step);
	spank_get_item(spank, S_TASK_GLOBAL_ID, &task);
	if (step == BATCH_STEP)
		snprintf(path, sizeof(path), "%s/%u.batch.%u", folder, job, task);
	else
		snprintf(path, sizeof(path), "%s/%u.%u.%u", folder, job, step, task);
	file = fopen(path, "w");
	if (file == NULL) {
		slurm_error("containers: cannot write %s: %m", path);
		return -1;
	}
	for (int option = 0; option < OPTIONS; option++)
		if (is_given[option])
			fprintf(file, "%s=%s\n", options[option].name, given[option]);
	if (fclose(file) != 0)
		return -1;
	return is_given[IMAGE] ? open_container(job, step) : 0;
}
