//! Which walls there are: none, those of Landlock, and those of another user.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use playhouse_protocol::walls::{Sandbox, Strength};
use playhouse_sandbox::process::run;
use playhouse_sandbox::walls::Walls;
use tokio_util::sync::CancellationToken;

use crate::house::{House, SECRET, example, quoted};

#[tokio::test]
async fn without_walls_everything_is_seen_and_said_to_be() {
    let mut house = House::new();
    house.spec.sandbox = Sandbox::Off;
    let walls = Walls::build(&house.spec).unwrap();
    assert_eq!(
        (walls.in_force().unwrap().strength, &*walls.in_force().unwrap().by),
        (Strength::None, "none")
    );
    assert!(walls.in_force().unwrap().network);
    let other = quoted(&house.root.join("other/secret"));
    assert_eq!(house.run_in(&walls, &format!("cat {other}")).await.1, SECRET);
    assert!(!house.spec.home.exists());
}

#[test]
fn the_best_that_there_is_is_taken() {
    let mut house = House::new();
    for sandbox in [Sandbox::Required, Sandbox::BestEffort] {
        house.spec.sandbox = sandbox;
        let walls = house.walls();
        let in_force = walls.in_force().unwrap();
        assert_eq!((in_force.strength, in_force.network), (Strength::Full, false), "{in_force}");
        assert!(
            in_force.detail.contains("no network") && in_force.detail.contains("private HOME"),
            "{in_force}"
        );
    }
}

#[tokio::test]
async fn landlock_holds_files_and_sockets() {
    let house = House::new();
    let walls = house.landlock();
    let in_force = walls.in_force().unwrap();
    assert_eq!((in_force.strength, &*in_force.by), (Strength::Weaker, "landlock"));
    assert!(in_force.detail.contains(".git/hooks"), "{in_force}");
    let root = quoted(&house.root);
    fs_err::write(house.spec.output.join("saved"), "saved").unwrap();
    let works = format!(
        "echo made > file && cat file && cat {root}/data/output/saved && echo kept > ~/note && cat ~/note && \
         echo x > $TMPDIR/x && git init --quiet && git status --short && perl -e 'print 1' > /dev/null && cargo --version > /dev/null"
    );
    // rustup's programs set this variable, a shell does not.
    let mut spec = house.command(&walls, &works);
    spec.environment = spec.environment.without("RUSTUP_HOME");
    let mut output = Vec::new();
    let exit = run(&spec, &CancellationToken::new(), &mut output).await.unwrap();
    let output = String::from_utf8_lossy(&output);
    assert_eq!((exit.code, &*output), (Some(0), "made\nsavedkept\n?? file\n"));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = house.spec.workspace.join("socket");
    let service = UnixListener::bind(&socket).unwrap();
    service.set_nonblocking(true).unwrap();
    let mut outside = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let (own, other) = (std::process::id(), outside.id());
    for attempt in [
        format!("cat {root}/other/secret"),
        format!("cat {root}/data/secret"),
        format!("ls {root}/other"),
        format!("echo x > {root}/other/made"),
        format!("echo x > {root}/data/output/made"),
        format!("ln -s {root}/other/secret link && cat link"),
        format!("ln {root}/other/secret hard"),
        format!("cat /proc/{own}/environ"),
        format!("cat /proc/{own}/root{root}/other/secret"),
        format!("kill -9 {other}"),
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}"),
        "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Peer => \"socket\") or die $!'".to_owned(),
        "cat /etc/shadow".to_owned(),
        "echo x > /usr/made".to_owned(),
        "exec 3>>/proc/sys/kernel/core_pattern".to_owned(),
        "unshare -U true".to_owned(),
        "mount -t tmpfs x /mnt".to_owned(),
        "exec 3<>/dev/tty".to_owned(),
        format!("ls '{}'", std::env::var("HOME").unwrap()),
    ] {
        let (exit, output) = house.run_in(&walls, &attempt).await;
        assert!(exit.code.is_some_and(|code| code != 0), "{attempt}: {exit:?} {output}");
        assert!(!output.contains(SECRET), "{attempt}: {output}");
    }
    assert!(!house.root.join("other/made").exists());
    assert!(outside.try_wait().unwrap().is_none(), "it was killed");
    outside.kill().unwrap();
    outside.wait().unwrap();
    assert!(listener.accept().is_err() && service.accept().is_err());
    let status = house.run_in(&walls, "cat /proc/self/status").await.1;
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
}

#[tokio::test]
async fn landlock_lets_the_network_through_where_it_is_allowed() {
    let mut house = House::new();
    house.spec.allowed.network = true;
    let walls = house.landlock();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (exit, output) = house.run_in(&walls, &format!("exec 3<>/dev/tcp/127.0.0.1/{port}")).await;
    assert_eq!(exit.code, Some(0), "{output}");
    assert!(walls.in_force().unwrap().network);
}

#[test]
fn a_program_that_is_not_confined_does_not_run() {
    let output = Command::new(example()).args(["__confine", "{}", "--", "echo", "ran"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(126), b"".as_slice()));
}

/// Runs a command in walls as a user without rights. Gives back what it wrote.
fn as_nobody(house: &House, level: Option<&str>, command: &str) -> String {
    let example = house.root.join("held");
    if !example.exists() {
        // By a process of its own: one that another test starts just now would hold it open for writing for a moment, and a
        // file that is written cannot be run.
        let copied = Command::new("cp").arg(crate::house::example()).arg(&example).status().unwrap();
        assert!(copied.success());
        for (path, mode) in
            [(house.root.clone(), 0o777), (house.root.join("data"), 0o700), (example.clone(), 0o755)]
        {
            fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::chown(&house.spec.workspace, Some(65534), Some(65534)).unwrap();
    }
    let mut program = Command::new("setpriv");
    program.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"]).arg(example);
    program.args(level).arg(&house.root).arg(command);
    program.env("HOME", "/nonexistent").current_dir("/").stdin(Stdio::null());
    let output = program.output().expect("setpriv is needed: apt install util-linux");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn walls_hold_for_a_user_without_rights() {
    if !rustix::process::getuid().is_root() {
        // Then all other tests were such ones.
        return;
    }
    let house = House::new();
    fs_err::set_permissions(house.root.join("other/secret"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let attempt = format!(
        "id -u; echo made > file; cat file; cat {}/other/secret; kill -9 -1; echo end",
        house.root.display()
    );
    let output = as_nobody(&house, None, &attempt);
    assert!(output.starts_with("bubblewrap (") && output.contains("65534\nmade\n"), "{output}");
    assert!(!output.contains(SECRET), "{output}");
    let status = as_nobody(
        &house,
        None,
        "cat /proc/self/status; ls /proc | grep -c '^[0-9]'; unshare -U true || echo held",
    );
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("CapEff:\t0000000000000000"), "{status}");
    assert!(status.ends_with("held\n") || status.contains("held\n"), "{status}");
    let output = as_nobody(&house, Some("--landlock"), &attempt.replace("kill -9 -1; ", ""));
    assert!(output.starts_with("landlock (") && output.contains("65534\nmade\n"), "{output}");
    assert!(!output.contains(SECRET) && output.contains("end\n"), "{output}");
}
