/*
 * A virtual machine with one CPU that counts and never waits. The thread of the CPU is
 * named as in QEMU. .ci/lab-kvm puts it under a server.
 *
 * vcpu SECONDS: runs for this time, then prints how far the guest counted and the CPU time of the thread in ns.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MEMORY 0x4000
#define START 0x1000
#define COUNTER 0x2000

/* In real mode: inc dword [COUNTER]; jmp back to it. */
static const uint8_t guest[] = { 0x66, 0xff, 0x06, COUNTER & 0xff, COUNTER >> 8, 0xeb, 0xf9 };

static void *run(void *vcpu)
{
	for (;;)
		if (ioctl(*(int *)vcpu, KVM_RUN, 0) && errno != EINTR)
			err(1, "KVM_RUN");
	return NULL;
}

int main(int count, char **arguments)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), machine, vcpu, failed;
	struct kvm_userspace_memory_region region = { .memory_size = MEMORY };
	struct kvm_regs registers = { .rip = START, .rflags = 2 };
	struct kvm_sregs segments;
	struct timespec used;
	clockid_t clock;
	pthread_t thread;
	uint8_t *memory;
	uint32_t counted;

	if (count != 2 || kvm < 0)
		err(1, "usage: vcpu SECONDS; /dev/kvm");
	machine = ioctl(kvm, KVM_CREATE_VM, 0);
	memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (machine < 0 || memory == MAP_FAILED)
		err(1, "KVM_CREATE_VM");
	memcpy(memory + START, guest, sizeof(guest));
	region.userspace_addr = (uintptr_t)memory;
	if (ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region))
		err(1, "KVM_SET_USER_MEMORY_REGION");
	vcpu = ioctl(machine, KVM_CREATE_VCPU, 0);
	if (vcpu < 0 || mmap(NULL, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ, MAP_SHARED, vcpu, 0) == MAP_FAILED)
		err(1, "KVM_CREATE_VCPU");
	if (ioctl(vcpu, KVM_GET_SREGS, &segments))
		err(1, "KVM_GET_SREGS");
	segments.cs.base = 0;
	segments.cs.selector = 0;
	if (ioctl(vcpu, KVM_SET_SREGS, &segments) || ioctl(vcpu, KVM_SET_REGS, &registers))
		err(1, "KVM_SET_REGS");
	failed = pthread_create(&thread, NULL, run, &vcpu);
	if (failed)
		errx(1, "pthread_create: %s", strerror(failed));
	pthread_setname_np(thread, "CPU 0/KVM");
	sleep(atoi(arguments[1]));
	memcpy(&counted, memory + COUNTER, sizeof(counted));
	if (pthread_getcpuclockid(thread, &clock) || clock_gettime(clock, &used))
		err(1, "clock_gettime");
	printf("counted %u used %lld\n", counted, used.tv_sec * 1000000000ll + used.tv_nsec);
	return 0;
}
