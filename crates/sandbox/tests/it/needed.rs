//! Walls that are built when something needs them.

use std::sync::Arc;

use playhouse_protocol::walls::{Sandbox, Strength};
use playhouse_sandbox::process::{ProcessError, run};
use playhouse_sandbox::walls::{Walls, WallsError};
use tokio_util::sync::CancellationToken;

use crate::house::House;

fn when_needed(house: &House) -> Walls {
    Walls::when_needed(&Arc::new(house.spec.clone())).unwrap()
}

#[tokio::test]
async fn the_first_command_builds_them_and_the_next_finds_them() {
    let house = House::new();
    let walls = when_needed(&house);
    assert_eq!(walls.known(), None);
    assert!(!house.spec.home.exists() && !house.spec.output.exists(), "nothing was made yet");
    let of_another = walls.clone();
    let (exit, output) = house.run_in(&walls, "echo kept > /tmp/note; ! cat ../data/secret").await;
    assert_eq!(exit.code, Some(0), "{output}");
    assert!(house.spec.home.exists() && house.spec.output.exists());
    let known = of_another.known().expect("clones are the same walls");
    assert_eq!((known.strength, &*known.by), (Strength::Full, "bubblewrap"), "{known}");
    assert_eq!(house.run_in(&of_another, "cat /tmp/note").await.1, "kept\n", "they were built once");
    assert_eq!(known, house.walls().in_force().unwrap(), "as those that are built at once");
}

#[test]
fn of_many_that_need_them_one_builds_them() {
    let house = House::new();
    let walls = when_needed(&house);
    let places: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| std::ptr::from_ref(walls.in_force().unwrap()).addr())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
}

#[test]
fn where_none_are_wanted_nothing_is_put_off() {
    let mut house = House::new();
    house.spec.sandbox = Sandbox::Off;
    let walls = when_needed(&house);
    assert_eq!(walls.known().map(|known| known.strength), Some(Strength::None));
}

#[tokio::test]
async fn a_workspace_that_was_replaced_meanwhile_is_refused() {
    for sandbox in [Sandbox::Required, Sandbox::BestEffort] {
        let mut house = House::new();
        house.spec.sandbox = sandbox;
        let walls = when_needed(&house);
        let (workspace, aside) = (&house.spec.workspace, house.root.join("aside"));
        fs_err::rename(workspace, &aside).unwrap();
        fs_err::os::unix::fs::symlink(house.root.join("other"), workspace).unwrap();
        assert!(matches!(walls.in_force(), Err(WallsError::Workspace(_))), "{sandbox}: {walls:?}");
        let spec = house.command(&walls, "touch ran");
        let refused = run(&spec, &CancellationToken::new(), &mut Vec::new()).await.unwrap_err();
        assert!(matches!(refused, ProcessError::Walls(_)), "{refused:?}");
        assert!(refused.to_string().contains(workspace.to_str().unwrap()), "{refused}");
        assert!(!house.root.join("other/ran").exists() && walls.known().is_none());

        // Where it is put back they are built.
        fs_err::remove_file(workspace).unwrap();
        fs_err::rename(&aside, workspace).unwrap();
        let (exit, output) = house.run_in(&walls, "touch ran").await;
        assert_eq!(exit.code, Some(0), "{output}");
        assert!(workspace.join("ran").exists());
    }
}
