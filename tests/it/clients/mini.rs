//! `opencode attach --mini`.

use super::attach::{messages, play};
use super::screen::Screen;
use crate::serve::Serving;

#[test]
#[ignore = "slow: scripts/slow runs it"]
fn the_small_terminal_client_takes_refusals() {
    let stage = play();
    let serving = Serving::start(&stage, ["--port", "0"]);
    let screen = Screen::start(&stage, ["attach", "--mini", &format!("http://{}", serving.address())]);
    screen.shows(["Ask anything"]);

    screen.prompts("Play the piece");
    screen.shows(["Play the piece", "Let me rehearse.", "played-42", "Permission required", "Reject"]);
    screen.press(["Right", "Right", "Enter"]);
    screen.shows(["Reject permission", "Tell OpenCode what to do differently"]);
    screen.prompts("Keep the first act");
    screen.shows(["Which ending?", "2. Sad", "dismiss"]);
    screen.press(["Escape"]);
    screen.shows(["The curtain falls."]);
    assert_eq!(stage.read("play.txt"), "the first act\n");
    let messages = messages(&serving);
    let refused = &messages[3]["parts"][2]["state"];
    assert!(refused["error"].as_str().unwrap().contains("Keep the first act"), "{refused}");
    let dismissed = &messages[4]["parts"][1]["state"];
    assert!(dismissed["output"].as_str().unwrap().starts_with("not answered"), "{dismissed}");

    screen.hides("interrupt");
    screen.press(["C-c"]);
    screen.shows(["again to exit"]);
    screen.press(["C-c"]);
    screen.ends();
}
