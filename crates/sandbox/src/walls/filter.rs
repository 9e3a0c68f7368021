//! System calls that no program in walls may make.
//!
//! They let a program look into others, build a world of its own in which it has more rights, or reach parts of the
//! kernel that ordinary programs never need and that were the way out of many a wall. What is denied fails with
//! "operation not permitted", so that programs that only try go on without.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

/// What is denied whatever its arguments are.
const DENIED: &[libc::c_long] = &[
    // Looks into other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // Does what other system calls do, past any filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Keyrings are not in any namespace.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Changes what is seen where.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    // Opens files past their folders.
    libc::SYS_open_by_handle_at,
    // Loads code into the kernel, or puts another one in its place.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    // Stops the kernel in the middle of its work, or watches it.
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_syslog,
    // Concerns the whole machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// Flags of `clone` and `unshare` that make a namespace, each a bit. In one of its own a program has all rights.
const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// A bit that means something else to `clone`.
const NEW_TIME: u64 = 0x80;

/// Requests of `ioctl` that type into a terminal.
const TYPING: &[u64] = &[0x5412, 0x541c];

/// Kinds of process that differ in nothing but names: the usual one, the question which one it is, and `setarch linux32`.
const PERSONALITIES: &[u64] = &[0, 0xffff_ffff, 8];

/// From here on system calls of x86_64 are those of another architecture, with numbers that no rule names.
#[cfg(target_arch = "x86_64")]
const FOREIGN: u32 = 0x4000_0000;

/// Which sockets may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// All but those that no namespace holds.
    InNamespace,
    /// Pairs only, and those that are never connected: for walls without a network namespace.
    Pairs,
}

/// The program that the kernel runs at each system call; `None` for architectures that it cannot be made for.
pub(super) fn program(sockets: Sockets) -> Option<BpfProgram> {
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    let filter = SeccompFilter::new(rules(sockets)?, SeccompAction::Allow, denied, architecture).ok()?;
    let rest = BpfProgram::try_from(filter).ok()?;
    Some(first().into_iter().chain(rest).collect())
}

/// The same as bytes, in the form in which bubblewrap reads it.
pub(super) fn bytes(sockets: Sockets) -> Option<Vec<u8>> {
    let bytes = program(sockets)?.into_iter().flat_map(|step| {
        let [code0, code1] = step.code.to_ne_bytes();
        let [k0, k1, k2, k3] = step.k.to_ne_bytes();
        [code0, code1, step.jt, step.jf, k0, k1, k2, k3]
    });
    Some(bytes.collect())
}

fn rules(sockets: Sockets) -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    let always = DENIED.iter().map(|call| (*call, Vec::new()));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = always.collect();
    let new = |bit: u64| Some(vec![bit_is_set(0, bit)?]);
    let namespaces: Vec<_> = NAMESPACES.iter().map(|bit| u64::from(bit.unsigned_abs())).collect();
    rules.insert(libc::SYS_clone, any(namespaces.iter().map(|bit| new(*bit)))?);
    rules.insert(libc::SYS_unshare, any(namespaces.iter().chain([&NEW_TIME]).map(|bit| new(*bit)))?);
    rules.insert(libc::SYS_ioctl, any(TYPING.iter().map(|request| Some(vec![is(1, *request)?])))?);
    let other = PERSONALITIES.iter().map(|kind| is_not(0, *kind)).collect::<Option<Vec<_>>>();
    rules.insert(libc::SYS_personality, any([other].into_iter())?);
    let kinds: Vec<_> = match sockets {
        Sockets::InNamespace => {
            [libc::AF_VSOCK, libc::AF_ALG].map(|kind| Some(vec![is(0, kind.unsigned_abs().into())?])).into()
        }
        Sockets::Pairs => {
            rules.insert(libc::SYS_connect, Vec::new());
            vec![is_not(0, libc::AF_UNIX.unsigned_abs().into()).map(|condition| vec![condition])]
        }
    };
    rules.insert(libc::SYS_socket, any(kinds.into_iter())?);
    Some(rules)
}

/// Denied when one of these sets of conditions holds.
fn any(sets: impl Iterator<Item = Option<Vec<SeccompCondition>>>) -> Option<Vec<SeccompRule>> {
    sets.map(|conditions| SeccompRule::new(conditions?).ok()).collect()
}

// All of these arguments are 32 bits wide for the kernel, which does not look at the upper half: nor may the filter.
fn is(argument: u8, value: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).ok()
}

fn is_not(argument: u8, value: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value).ok()
}

fn bit_is_set(argument: u8, bit: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit).ok()
}

/// What comes before the rules: calls that fail in another way, or that no rule can name.
fn first() -> Vec<sock_filter> {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    #[cfg(target_arch = "x86_64")]
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let step = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    let fail = |error: i32| step(RETURN, 0, 0x0005_0000 | error.unsigned_abs());
    vec![
        step(LOAD_NUMBER, 0, 0),
        #[cfg(target_arch = "x86_64")]
        step(JUMP_IF_AT_LEAST, 1, FOREIGN),
        #[cfg(target_arch = "x86_64")]
        fail(libc::EPERM),
        // Its flags lie in memory, where no filter sees them. Programs that hear that it does not exist use `clone`.
        step(JUMP_IF_EQUAL, 1, u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX)),
        fail(libc::ENOSYS),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    const EPERM: u32 = 0x0005_0000 | 1;
    const ENOSYS: u32 = 0x0005_0000 | 38;

    /// Runs the program as the kernel does.
    fn verdict(sockets: Sockets, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let program = program(sockets).expect("tests run on x86_64 or aarch64");
        let mut data = Vec::new();
        data.extend(number.to_ne_bytes());
        data.extend(architecture.to_ne_bytes());
        data.extend([0; 8]);
        arguments.iter().for_each(|argument| data.extend(argument.to_ne_bytes()));
        let word = |at: u32| {
            let at = at as usize;
            u32::from_ne_bytes(data[at..at + 4].try_into().unwrap())
        };
        let (mut register, mut at) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                0x20 => register = word(step.k),
                0x54 => register &= step.k,
                0x05 => at += step.k as usize,
                0x15 => at += jump(register == step.k),
                0x25 => at += jump(register > step.k),
                0x35 => at += jump(register >= step.k),
                0x06 => return step.k,
                code => panic!("unknown step {code:#x}"),
            }
        }
    }

    fn of(number: libc::c_long, arguments: [u64; 2]) -> u32 {
        let [first, second] = arguments;
        verdict(Sockets::InNamespace, OWN, u32::try_from(number).unwrap(), [first, second, 0, 0, 0, 0])
    }

    #[test]
    fn what_is_denied_fails_and_the_rest_goes_on() {
        for call in DENIED {
            assert_eq!(of(*call, [0, 0]), EPERM, "{call}");
        }
        for call in [libc::SYS_read, libc::SYS_openat, libc::SYS_execve, libc::SYS_setsid, libc::SYS_connect]
        {
            assert_eq!(of(call, [1, 2]), ALLOW, "{call}");
        }
        assert_eq!(of(libc::SYS_clone3, [0, 0]), ENOSYS);
    }

    #[test]
    fn no_namespace_can_be_made() {
        let ordinary = u64::from((libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD).unsigned_abs());
        assert_eq!(of(libc::SYS_clone, [ordinary, 0]), ALLOW);
        for bit in NAMESPACES {
            let bit = u64::from(bit.unsigned_abs());
            assert_eq!(of(libc::SYS_clone, [ordinary | bit, 0]), EPERM, "{bit:#x}");
            assert_eq!(of(libc::SYS_unshare, [bit, 0]), EPERM, "{bit:#x}");
            assert_eq!(of(libc::SYS_unshare, [bit | 1 << 40, 0]), EPERM, "the upper half counts for nothing");
        }
        assert_eq!(of(libc::SYS_unshare, [u64::from(libc::CLONE_FS.unsigned_abs()), 0]), ALLOW);
    }

    #[test]
    fn arguments_are_seen_as_the_kernel_sees_them() {
        assert_eq!(of(libc::SYS_ioctl, [0, 0x5412]), EPERM);
        assert_eq!(of(libc::SYS_ioctl, [0, 0x5412 | 1 << 32]), EPERM);
        assert_eq!(of(libc::SYS_ioctl, [0, 0x5413]), ALLOW);
        assert_eq!(of(libc::SYS_personality, [0xffff_ffff, 0]), ALLOW);
        assert_eq!(of(libc::SYS_personality, [0x0040_0000, 0]), EPERM);
        assert_eq!(of(libc::SYS_socket, [libc::AF_INET as u64, 1]), ALLOW);
        assert_eq!(of(libc::SYS_socket, [libc::AF_VSOCK as u64, 1]), EPERM);
    }

    #[test]
    fn without_a_network_namespace_there_are_no_sockets_to_others() {
        let of = |call: libc::c_long, kind: i32| {
            let arguments = [kind.unsigned_abs().into(), 1, 0, 0, 0, 0];
            verdict(Sockets::Pairs, OWN, u32::try_from(call).unwrap(), arguments)
        };
        for kind in [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK] {
            assert_eq!(of(libc::SYS_socket, kind), EPERM, "{kind}");
        }
        assert_eq!(of(libc::SYS_socket, libc::AF_UNIX), ALLOW);
        assert_eq!(of(libc::SYS_socketpair, libc::AF_UNIX), ALLOW);
        assert_eq!(of(libc::SYS_connect, libc::AF_UNIX), EPERM);
    }

    #[test]
    fn other_architectures_are_not_served() {
        const I386: u32 = 0x4000_0003;
        assert_eq!(verdict(Sockets::InNamespace, I386, 26, [0; 6]), KILL);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(of(libc::SYS_ptrace + 0x4000_0000, [0, 0]), EPERM);
    }

    #[test]
    fn a_step_has_eight_bytes() {
        let bytes = bytes(Sockets::InNamespace).unwrap();
        assert_eq!(bytes.len(), 8 * program(Sockets::InNamespace).unwrap().len());
        assert_eq!(bytes[..2], 0x20_u16.to_ne_bytes());
    }
}
