//! Processes, the network, system calls, and the programs that must work all the same.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use playhouse_sandbox::process::{Environment, run};
use tokio_util::sync::CancellationToken;

use crate::house::House;

#[tokio::test]
async fn other_processes_are_not_there() {
    let house = House::new();
    let mut outside = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let (own, other) = (std::process::id(), outside.id());
    // The numbers of processes begin anew in walls: those of this machine's are far away from them.
    for target in [own, other].into_iter().filter(|number| *number > 100) {
        house.fails(&format!("kill -9 {target}")).await;
        house.fails(&format!("cat /proc/{target}/environ")).await;
    }
    house.done("kill -9 -1 2>/dev/null; true").await;
    assert!(outside.try_wait().unwrap().is_none(), "it was killed");
    outside.kill().unwrap();
    outside.wait().unwrap();
    let count: u32 = house.done("ls /proc | grep -c '^[0-9]'").await.trim().parse().unwrap();
    assert!(count < 10, "{count} processes are seen");
}

#[tokio::test]
async fn no_environment_but_its_own_is_seen() {
    let house = House::new();
    // The test runner's own environment has this.
    let mark = std::env::var("CARGO_MANIFEST_DIR").expect("run the tests with cargo");
    let seen = house.done("env; cat /proc/*/environ | tr '\\0' '\\n'").await;
    assert!(!seen.contains("CARGO_MANIFEST_DIR") && !seen.contains(&mark), "{seen}");
    let walls = house.walls();
    let mut spec = house.command(&walls, "echo $GIVEN $GOPATH $TMPDIR");
    spec.environment = Environment::of([]).with("GIVEN", "yes").with("GOPATH", "/x").with("TMPDIR", "/x");
    let mut output = Vec::new();
    run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
    assert_eq!(String::from_utf8(output).unwrap(), "yes /tmp\n");
}

#[tokio::test]
async fn there_is_no_network_unless_it_is_allowed() {
    let mut house = House::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    assert!(!house.fails(&connect).await.contains("connected"));
    assert!(listener.accept().is_err(), "somebody came");
    let links = house.done("cat /proc/net/dev | tail -n +3 | cut -d: -f1").await;
    assert_eq!(links.trim(), "lo", "only the way to itself");
    // To itself it can speak.
    house.done("perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1\") or die; IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => $l->sockport) or die'").await;
    house.fails("cat /etc/resolv.conf").await;
    house.spec.allowed.network = true;
    assert_eq!(house.done(&connect).await, "connected\n");
    assert!(listener.accept().is_ok());
    assert!(house.walls().in_force().unwrap().network);
}

/// Numbers of system calls: name, x86_64, aarch64.
const DENIED: &[(&str, u32, u32)] = &[
    ("ptrace", 101, 117),
    ("process_vm_readv", 310, 270),
    ("io_uring_setup", 425, 425),
    ("keyctl", 250, 219),
    ("mount", 165, 40),
    ("fsopen", 430, 430),
    ("finit_module", 313, 273),
    ("bpf", 321, 280),
    ("userfaultfd", 323, 282),
    ("perf_event_open", 298, 241),
    ("setns", 308, 268),
    ("open_by_handle_at", 304, 265),
];

#[tokio::test]
async fn system_calls_that_only_serve_to_get_out_are_denied() {
    let house = House::new();
    let number = |call: &(&str, u32, u32)| if cfg!(target_arch = "aarch64") { call.2 } else { call.1 };
    for call in DENIED {
        // 1 is "operation not permitted"; without the filter most of them would fail in another way.
        let script = format!("perl -e 'syscall({}, -1, 0, 0, 0, 0); print $!+0'", number(call));
        assert_eq!(house.done(&script).await, "1", "{}", call.0);
    }
    // A namespace of one's own gives all rights in it.
    for attempt in
        ["unshare -U true", "unshare -r true", "unshare -n true", "mount -t tmpfs x /mnt", "chroot / true"]
    {
        house.fails(attempt).await;
    }
    let status = house.done("cat /proc/self/status").await;
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"] {
        assert!(status.contains(line), "{line}: {status}");
    }
}

#[tokio::test]
async fn programs_of_the_operator_work() {
    let house = House::new();
    let path = std::env::var_os("PATH").expect("tests run with a PATH");
    let mut found = 0;
    for (program, argument) in [
        ("cargo", "--version"),
        ("rustc", "--version"),
        ("git", "--version"),
        ("perl", "-v"),
        ("python3", "--version"),
        ("node", "--version"),
        ("java", "-version"),
        ("go", "version"),
        ("cc", "--version"),
    ] {
        if !std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
            continue;
        }
        let outside = Command::new(program).arg(argument).current_dir("/").output().unwrap();
        if !outside.status.success() {
            continue;
        }
        found += 1;
        let inside = house.done(&format!("{program} {argument} 2>/dev/null")).await;
        assert_eq!(inside, String::from_utf8_lossy(&outside.stdout), "{program}");
    }
    assert!(found >= 4, "cargo, rustc, git and perl are needed");
}

#[tokio::test]
async fn a_package_can_be_built() {
    let house = House::new();
    house.write(
        "Cargo.toml",
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n",
    );
    house.write("src/main.rs", "fn main() { println!(\"built\"); }\n");
    assert!(house.done("cargo run --quiet").await.ends_with("built\n"));
    assert!(house.spec.workspace.join("target").is_dir());
}

#[tokio::test]
async fn no_open_file_and_no_terminal_is_handed_on() {
    let house = House::new();
    let open = house.done("ls /proc/self/fd").await;
    // The last one is the folder that is listed.
    assert_eq!(open.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"], "{open}");
    house.fails("exec 3<>/dev/tty").await;
    assert_eq!(house.done("hostname 2>/dev/null || cat /proc/sys/kernel/hostname").await, "sandbox\n");
}
