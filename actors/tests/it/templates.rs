//! Command templates: what they become, and the shell blocks that run for them.

use mock_llm::Script;
use playhouse_actors::SessionHandle;
use playhouse_protocol::consent::{Action, ConsentAnswer, PermissionRule};
use playhouse_protocol::message::PromptKind;
use playhouse_protocol::record::{Record, TurnOutcome};
use playhouse_protocol::{
    Accepted, Command, CommandError, MessageId, NewSession, Prompt, Reply, TemplateCommand,
};

use crate::attachments::{put, read_by_model, texts};
use crate::support::{Stage, kinds, until};

/// `/sh COMMAND`: a text, the output of the command, and a text with a mention.
fn shell(command: &str) -> TemplateCommand {
    TemplateCommand { name: "sh".into(), arguments: command.into(), ..TemplateCommand::default() }
}

async fn prompts(stage: &Stage, session: &SessionHandle) -> Vec<PromptKind> {
    let records = stage.records(session).await;
    let kinds = records.into_iter().filter_map(|record| match record {
        Record::PromptAdmitted(prompt) => Some(prompt.kind),
        _ => None,
    });
    kinds.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_block_is_a_turn_of_its_own_and_its_output_stands_in_the_prompt() {
    let stage = Stage::new(Script::new()).await;
    put(&stage, "a.txt", "one");
    put(&stage, "b.txt", "two");
    let session = stage.session("echo").await;
    let finished = session.run_template(shell("echo '@b.txt $1 !`x`'; echo more")).await.unwrap();
    assert_eq!(finished.ended.outcome, TurnOutcome::Completed);
    assert_eq!(
        texts(&stage),
        ["Before: @b.txt $1 !`x`\nmore. See @a.txt", "<file name=\"a.txt\">\n1\tone\n</file>"]
    );
    // The model is shown that, and not the call beside it.
    assert_eq!(stage.directory.mock.journal().entries().len(), 1);
    assert_eq!(read_by_model(&stage).1, 1, "one message");
    let records = stage.records(&session).await;
    assert_eq!(
        kinds(&records)[1..8],
        [
            "prompt.admitted",
            "turn.started",
            "call.proposed",
            "step.finished",
            "call.intended",
            "call.settled",
            "turn.ended",
        ]
    );
    let command = "echo '@b.txt $1 !`x`'; echo more".to_owned();
    let block = PromptKind::Block { command, template: "sh".into() };
    assert_eq!(prompts(&stage, &session).await, [block, PromptKind::Turn]);
    // A later request is the same with more at its end.
    session.run(Prompt::text("And now?")).await.unwrap();
    assert_eq!(read_by_model(&stage).1, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_block_is_agreed_to_as_any_call_is() {
    let stage = Stage::new(Script::new()).await.bare();
    let session = stage.session("echo").await;
    for (answer, runs) in [(ConsentAnswer::Once, true), (ConsentAnswer::Decline { message: None }, false)] {
        let mut events = session.events(None).await.unwrap();
        let running = {
            let session = session.clone();
            tokio::spawn(async move { session.template(shell("touch made; echo done")).await })
        };
        let asked = until(&mut events, |record| matches!(record, Record::ConsentAsked(_))).await;
        let Record::ConsentAsked(asked) = asked else { panic!("it is a request for consent") };
        session.answer(asked.consent, answer).await.unwrap();
        let accepted = running.await.unwrap();
        let made = stage.folder.path().join("workspace/made");
        assert_eq!((made.exists(), accepted.is_ok()), (runs, runs), "{accepted:?}");
        if runs {
            until(&mut events, |record| matches!(record, Record::TurnEnded(ended) if Some(ended.turn) == accepted.as_ref().ok().map(|accepted| accepted.turn))).await;
            fs_err::remove_file(made).unwrap();
        } else {
            let error = accepted.unwrap_err().to_string();
            assert!(
                error.starts_with(
                    "/sh was not run: its shell block `touch made; echo done` did not end well: "
                ),
                "{error}"
            );
        }
    }
    // Nobody is there who could agree.
    let prompt = Prompt { unattended: true, ..Prompt::default() };
    let error = session.template(TemplateCommand { prompt, ..shell("touch made") }).await.unwrap_err();
    assert!(error.to_string().starts_with("/sh was not run"), "{error}");
    assert_eq!(stage.directory.mock.journal().entries().len(), 1, "one prompt was admitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_stays_denied_and_nothing_is_sent() {
    let stage = Stage::new(Script::new()).await;
    let deny = PermissionRule { permission: "bash".into(), pattern: "touch *".into(), action: Action::Deny };
    let new = NewSession { permissions: vec![deny], ..stage.new_session("echo") };
    let session = stage.engine.create(new).await.unwrap();
    let error = session.template(shell("touch made")).await.unwrap_err();
    assert!(matches!(&error, CommandError::Invalid(text) if text.starts_with("/sh was not run")), "{error}");
    assert!(!stage.folder.path().join("workspace/made").exists());
    assert!(stage.directory.mock.journal().entries().is_empty());
    for (name, said) in [("none", "unknown command \"none\""), ("later", "no tool `task`")] {
        let template = TemplateCommand { name: name.into(), ..TemplateCommand::default() };
        match session.template(template).await {
            Err(error) => assert!(error.to_string().contains(said), "{error}"),
            // Where there is such a tool, the agent is told to use it.
            Ok(_) => assert_eq!(name, "later"),
        }
    }
    let template = TemplateCommand { prompt: Prompt::text("a text"), ..shell("true") };
    assert!(session.template(template).await.unwrap_err().to_string().contains("leave `text` out"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_command_again_runs_nothing_twice() {
    let stage = Stage::new(Script::new()).await;
    let session = stage.session("echo").await;
    let message: MessageId = "msg_0123456789abTheIdOfAClient".parse().unwrap();
    let prompt = Prompt { message: Some(message), ..Prompt::default() };
    let template = || TemplateCommand { prompt: prompt.clone(), ..shell("echo x >> made; cat made") };
    session.run_template(template()).await.unwrap();
    // Through whatever carries commands.
    let again = session.command(Command::Template(Box::new(template()))).await;
    assert_eq!(again, Ok(Reply::Accepted(Accepted { turn: message, repeated: true })));
    let made = fs_err::read_to_string(stage.folder.path().join("workspace/made")).unwrap();
    assert_eq!(made, "x\n");
    assert_eq!(stage.directory.mock.journal().entries().len(), 1);
    let other = TemplateCommand { prompt: prompt.clone(), ..shell("echo y") };
    assert_eq!(session.template(other).await, Err(CommandError::Repeated(message.earlier(1))));
}
