//! What is seen, and what can be changed.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use playhouse_protocol::walls::Strength;

use crate::house::{House, SECRET, quoted};

#[tokio::test]
async fn the_workspace_can_be_changed_and_nothing_around_it_is_there() {
    let house = House::new();
    house.write("in", "hello");
    assert_eq!(
        house.done("cat in; echo made > out; pwd").await,
        format!("hello{}\n", house.spec.workspace.display())
    );
    assert_eq!(house.read("out"), "made\n");
    let other = quoted(&house.root.join("other"));
    assert!(!house.fails(&format!("cat {other}/secret")).await.contains(SECRET));
    house.fails(&format!("echo x > {other}/made")).await;
    // The folder itself lies in a /tmp that is private, so that what is made in it is made there.
    house.run(&format!("echo x > {}/made", quoted(&house.root))).await;
    assert!(!house.root.join("other/made").exists() && !house.root.join("made").exists());
    let seen = house.done(&format!("ls -A {}", quoted(&house.root))).await;
    assert_eq!(
        seen.split_whitespace().collect::<Vec<_>>(),
        ["data", "workspace"],
        "only the way to what is seen"
    );
}

#[tokio::test]
async fn links_lead_nowhere_else() {
    let house = House::new();
    let link = |target: &std::path::Path, name: &str| {
        fs_err::os::unix::fs::symlink(target, house.spec.workspace.join(name)).unwrap();
    };
    link(&house.root.join("other"), "absolute");
    link(std::path::Path::new("../other"), "relative");
    for attempt in
        ["absolute/secret", "relative/secret", "../other/secret", "/proc/self/root/etc/../../other/secret"]
    {
        assert!(!house.fails(&format!("cat {attempt}")).await.contains(SECRET), "{attempt}");
    }
    let other = quoted(&house.root.join("other/secret"));
    for path in ["/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../..", "/dev/fd/../.."] {
        assert!(!house.run(&format!("cat {path}{other}")).await.1.contains(SECRET), "{path}");
    }
    house.fails("echo x > absolute/made").await;
    house.fails(&format!("ln {other} hard && cat hard")).await;
    assert!(!house.root.join("other/made").exists());
}

#[tokio::test]
async fn the_system_can_be_read_and_not_changed() {
    let house = House::new();
    house.done("ls /usr/bin /bin /etc/passwd > /dev/null && id -un").await;
    for place in ["/usr/made", "/etc/made", "/made", "/usr/lib/made", "/root/made", "/var/made", "/run/made"]
    {
        house.fails(&format!("echo x > {place}")).await;
        assert!(!std::path::Path::new(place).exists(), "{place}");
    }
    for secret in
        ["/etc/shadow", "/etc/ssl/private", "/sys/kernel", "/var/log", "~root/.ssh", "/boot", "/home"]
    {
        house.fails(&format!("ls {secret}")).await;
    }
    for device in ["/dev/sda", "/dev/vda", "/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/kvm", "/dev/vsock"] {
        house.fails(&format!("ls {device}")).await;
    }
    // Opened for appending only: nothing is written should it work.
    for setting in ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger"]
    {
        house.fails(&format!("exec 3>>{setting}")).await;
    }
}

#[tokio::test]
async fn home_is_private_and_stays() {
    let house = House::new();
    let home = house.spec.home.display().to_string();
    assert_eq!(house.done("echo kept > ~/note; cd; pwd; echo $HOME").await, format!("{home}\n{home}\n"));
    assert_eq!(house.done("cat ~/note").await, "kept\n");
    assert_eq!(house.done("perl -e 'print +(getpwuid($<))[7]'").await, home);
    assert_eq!(fs_err::metadata(&house.spec.home).unwrap().permissions().mode() & 0o777, 0o700);
    let operator = std::env::var("HOME").expect("tests run with a HOME");
    for secret in [
        ".ssh",
        ".gitconfig",
        ".netrc",
        ".cargo/registry",
        ".cargo/credentials.toml",
        ".bash_history",
        ".config",
    ] {
        house.fails(&format!("ls -d '{operator}/{secret}'")).await;
    }
    house.fails(&format!("echo x > '{operator}/playhouse-made'")).await;
    assert!(!std::path::Path::new(&operator).join("playhouse-made").exists());
}

#[tokio::test]
async fn tmp_is_private_and_lives_as_long_as_the_walls() {
    let house = House::new();
    let outside = tempfile::Builder::new().prefix("outside-").tempfile_in("/tmp").unwrap();
    let walls = house.walls();
    house.fails(&format!("ls {}", quoted(outside.path()))).await;
    let name = format!("/tmp/made-{}", std::process::id());
    assert_eq!(
        house.run_in(&walls, &format!("echo here > {name}; cat /var/tmp/../../{name}")).await.1,
        "here\n"
    );
    assert!(!std::path::Path::new(&name).exists());
    assert_eq!(house.run_in(&walls, &format!("cat {name}; cat $TMPDIR/made-*")).await.1, "here\nhere\n");
    assert_ne!(house.run(&format!("cat {name}")).await.0.code, Some(0), "other walls have another");
}

#[tokio::test]
async fn nothing_can_be_put_where_the_next_view_is_built() {
    // The workspace itself lies in /tmp, and so in a folder that programs can change.
    let house = House::new();
    let walls = house.walls();
    let way = quoted(&house.root);
    let attempt =
        format!("mv {way} /tmp/aside; mkdir -p {way} && ln -s / {way}/workspace; rm -d {way}; echo end");
    let output = house.run_in(&walls, &attempt).await.1;
    assert!(output.contains("busy") && output.ends_with("end\n"), "{output}");
    assert_eq!(house.run_in(&walls, "echo fine > file; cat file").await.1, "fine\n");
    assert_eq!(house.read("file"), "fine\n");
}

#[tokio::test]
async fn the_output_can_be_read_and_not_changed() {
    let house = House::new();
    let walls = house.walls();
    fs_err::write(house.spec.output.join("saved"), "long output").unwrap();
    let output = quoted(&house.spec.output);
    assert_eq!(house.run_in(&walls, &format!("cat {output}/saved")).await.1, "long output");
    for attempt in [format!("echo x > {output}/made"), format!("rm {output}/saved"), format!("mv {output} x")]
    {
        house.fails(&attempt).await;
    }
    assert_eq!(fs_err::read_dir(&house.spec.output).unwrap().count(), 1);
    // It lies in what is hidden.
    assert!(!house.run(&format!("cat {output}/../secret")).await.1.contains(SECRET));
    // So may those of sessions that this one is a fork of, as far as they are there.
    let shared = &house.spec.shared[0];
    fs_err::create_dir(shared).unwrap();
    fs_err::write(shared.join("saved"), "earlier output").unwrap();
    let shared = quoted(shared);
    assert_eq!(house.run(&format!("cat {shared}/saved")).await.1, "earlier output");
    house.fails(&format!("echo x > {shared}/made")).await;
}

#[tokio::test]
async fn what_is_hidden_is_not_seen_where_the_workspace_holds_it() {
    let mut house = House::new();
    house.write("data/log", SECRET);
    house.write("config.toml", SECRET);
    house.write("settings/other", "seen");
    let within = |name: &str| house.spec.workspace.join(name);
    let hidden = ["data", "config.toml", "settings/config.toml"].map(within);
    let (home, output) = (within("data/home"), within("data/output"));
    house.spec.hidden = hidden.into();
    (house.spec.home, house.spec.output) = (home, output);
    let seen =
        house.done("cat config.toml; ls -A data; cat settings/other; echo x > ~/note && cat ~/note").await;
    assert_eq!(seen, "home\noutput\nseenx\n");
    for attempt in [
        "echo x > config.toml",
        "rm config.toml",
        "mv config.toml x",
        "echo x > data/made",
        "mv data x",
        "echo x > settings/config.toml",
        "mv settings x && mkdir settings && echo x > settings/config.toml",
    ] {
        house.fails(attempt).await;
    }
    assert_eq!((house.read("data/log"), house.read("config.toml")), (SECRET.to_owned(), SECRET.to_owned()));
    assert!(!house.spec.workspace.join("settings/config.toml").exists());
}

#[tokio::test]
async fn what_is_allowed_is_seen_and_no_more() {
    let mut house = House::new();
    for folder in ["sdk/lib", "shared", "data/inner"] {
        fs_err::create_dir_all(house.root.join(folder)).unwrap();
        fs_err::write(house.root.join(folder).join("file"), folder).unwrap();
    }
    let named =
        |names: &[&str]| names.iter().map(|name| house.root.join(name).display().to_string()).collect();
    house.spec.allowed.read = named(&["sdk", "data", "data/inner"]);
    house.spec.allowed.write = named(&["shared", "missing"]);
    let root = quoted(&house.root);
    let seen =
        house.done(&format!("cat {root}/sdk/lib/file {root}/shared/file; echo x > {root}/shared/made")).await;
    assert_eq!(seen, "sdk/libshared");
    house.fails(&format!("echo x > {root}/sdk/made")).await;
    // What is hidden stays so, whatever else is said.
    house.fails(&format!("cat {root}/data/inner/file")).await;
    assert!(house.root.join("shared/made").exists() && !house.root.join("sdk/made").exists());
    let detail = house.walls().in_force().unwrap().detail.clone();
    assert!(detail.contains("/sdk") && detail.contains("/shared"), "{detail}");
}

#[tokio::test]
async fn settings_may_be_readable_as_a_whole() {
    let mut house = House::new();
    house.spec.allowed.read = vec!["/etc".to_owned()];
    house.done("ls /etc/ssl && test -r /etc/passwd && date && git --version").await;
    house.fails("echo x > /etc/made").await;
}

#[tokio::test]
async fn a_workspace_may_be_read_only() {
    let mut house = House::new();
    house.spec.allowed.read_only = true;
    house.write("file", "as it was");
    house.write(".git/HEAD", "ref: refs/heads/main\n");
    for attempt in ["echo x > file", "echo x > made", "rm file", "echo x > .git/config", "chmod 777 ."] {
        house.fails(attempt).await;
    }
    assert_eq!(house.done("cat file").await, "as it was");
    assert!(!house.spec.workspace.join(".git/config").exists(), "nothing is made in it either");
}

#[tokio::test]
async fn everything_may_be_readable() {
    let mut house = House::new();
    house.spec.allowed.read = vec!["/".to_owned()];
    let other = quoted(&house.root.join("other/secret"));
    // It lies in /tmp, which is private all the same.
    house.fails(&format!("cat {other}")).await;
    house.done("ls /etc/ssl /var > /dev/null; echo x > made; echo x > /tmp/made; echo x > ~/made").await;
    house.fails("echo x > /etc/made").await;
    assert!(!house.run(&format!("cat {}", quoted(&house.root.join("data/secret")))).await.1.contains(SECRET));
}

#[tokio::test]
async fn odd_names_are_names() {
    for name in ["with space", "new\nline", "ünïcode 日本", "quote'd \"name\"", "--bind", "$(touch x)"] {
        let house = House::named(name);
        house.write(".git/HEAD", "ref: refs/heads/main\n");
        house.write("file", "hello");
        assert_eq!(house.done("cat file; echo made > out").await, "hello", "{name:?}");
        house.fails("echo x > .git/config").await;
        assert_eq!(house.read("out"), "made\n", "{name:?}");
        assert!(!house.walls().in_force().unwrap().detail.contains('\n'));
    }
}

#[tokio::test]
#[ignore = "only root can give files away: scripts/test runs it where it is root, scripts/slow always"]
async fn files_of_others_can_be_changed_by_root_in_the_workspace_only() {
    assert!(rustix::process::getuid().is_root(), "only root can give files away: run scripts/slow as root");
    let house = House::new();
    house.write("file", "theirs");
    for path in [house.spec.workspace.clone(), house.spec.workspace.join("file")] {
        std::os::unix::fs::chown(path, Some(12345), Some(12345)).unwrap();
    }
    house.done("echo changed > file && echo new > made").await;
    assert_eq!(house.read("file"), "changed\n");
    assert_eq!(fs_err::metadata(house.spec.workspace.join("file")).unwrap().uid(), 12345);
    house.fails("echo x > /usr/made").await;
    house.fails("mount -t tmpfs x /mnt || mknod device c 1 3").await;
    house.fails("exec 3>>/proc/sys/kernel/core_pattern").await;
    assert_eq!(house.walls().in_force().unwrap().strength, Strength::Full);
}
