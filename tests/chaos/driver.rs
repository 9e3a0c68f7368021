//! What clients do: each slot makes sessions one after the other, prompts, aborts, forks and deletes them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::RwLockReadGuard;

use crate::client::{Answer, insist, unexpected};
use crate::follower::follow;
use crate::model::{Deletion, Phase, World, count, shown, text_at};
use crate::plan::{Dice, KINDS, kind_name};
use crate::stage::DIALECTS;

/// How long a client waits for a turn before it goes on, in milliseconds.
const WAITS: u64 = 6_000;
/// More than what stands in a record itself.
const LARGE: usize = 70_000;

/// The life of one slot.
pub(crate) async fn drive(world: Arc<World>, slot: usize) {
    let mut driver = Driver { dice: world.plan.dice(("slot", slot)), world, slot, left: Vec::new(), sent: 0 };
    // They do not all come at once.
    let pause = driver.dice.millis(0, driver.world.plan.tempo.first);
    driver.world.rest(pause).await;
    while driver.goes_on() {
        if driver.session().await.is_none() {
            return;
        }
    }
}

struct Driver {
    world: Arc<World>,
    slot: usize,
    dice: Dice,
    /// Sessions that were left behind, oldest first.
    left: Vec<String>,
    sent: u64,
}

impl Driver {
    fn goes_on(&self) -> bool {
        self.world.phase() == Phase::Chaos && self.world.failed().is_ok()
    }

    fn tenant(&self) -> usize {
        self.slot % self.world.tenants.len()
    }

    /// Waits until something may be done; `None` when the run is over. Not all come at once when they had to wait.
    async fn begins<'a>(&mut self, world: &'a World) -> Option<RwLockReadGuard<'a, ()>> {
        while world.is_calm() {
            drop(world.load.read().await);
            world.rest(self.dice.millis(0, world.plan.tempo.first)).await;
        }
        let at_work = world.load.read().await;
        self.goes_on().then_some(at_work)
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Option<Answer> {
        insist(&self.world, self.tenant(), method, path, Some(body)).await
    }

    /// A session from its beginning on; `None` when the run is over.
    async fn session(&mut self) -> Option<()> {
        let workspaces = &self.world.tenants[self.tenant()].workspaces;
        let (workspace, kind) = (self.dice.pick(workspaces).clone(), self.dice.below(KINDS as u64));
        let kind = usize::try_from(kind).unwrap();
        let (dialect, _) = self.dice.pick(&DIALECTS);
        let model = format!("on-{dialect}/{}", kind_name(kind));
        let body =
            json!({"workspace": shown(&workspace), "model": model, "title": format!("slot {}", self.slot)});
        let world = Arc::clone(&self.world);
        let session = {
            let _at_work = self.begins(&world).await?;
            let made = self.ask("POST", "/v1/sessions", &body).await?;
            let session = self.made(&made, "a session is made")?;
            self.world.told(&session, |told| {
                (told.workspace, told.kind) = (workspace, kind);
            });
            session
        };
        self.left.push(session.clone());
        for _ in 0..2 + self.dice.below(8) {
            if !self.goes_on() {
                return None;
            }
            {
                let _at_work = self.begins(&world).await?;
                // Its forks stand before it.
                let most = world.plan.tempo.forks.saturating_add(1);
                while self.left.len() > most && self.goes_on() {
                    let fork = self.left.remove(0);
                    self.delete(&fork).await?;
                }
                self.act(&session).await?;
            }
            let pause = self.dice.millis(0, world.plan.tempo.pause);
            self.world.rest(pause).await;
        }
        let _at_work = self.begins(&world).await?;
        while self.left.len() > world.plan.tempo.left && self.goes_on() {
            let session = self.left.remove(0);
            self.delete(&session).await?;
        }
        Some(())
    }

    /// A new session, with somebody who follows it.
    fn made(&self, made: &Answer, what: &str) -> Option<String> {
        if made.status != 201 {
            unexpected(&self.world, "", what, made);
            return None;
        }
        let session = text_at(&made.body, "/id").to_owned();
        let tenant = self.tenant();
        self.world.told(&session, |told| told.tenant = tenant);
        tokio::spawn(follow(Arc::clone(&self.world), session.clone(), tenant));
        Some(session)
    }

    async fn act(&mut self, session: &str) -> Option<()> {
        match self.dice.below(100) {
            0..=54 => {
                self.prompt(session).await?;
                self.wait(session).await;
                Some(())
            }
            // Several that wait for each other.
            55..=74 => {
                for _ in 0..1 + self.dice.below(3) {
                    self.prompt(session).await?;
                }
                Some(())
            }
            75..=84 => self.abort(session).await,
            85..=92 => self.fork(session).await,
            _ => self.rename(session).await,
        }
    }

    async fn prompt(&mut self, session: &str) -> Option<()> {
        self.sent += 1;
        let message = message_id(&mut self.dice, self.slot, self.sent);
        let mut body =
            json!({"message": message, "text": format!("prompt {} of slot {}", self.sent, self.slot)});
        match self.dice.below(100) {
            0..=3 => body["text"] = "many words ".repeat(LARGE / 11).into(),
            4..=9 => {
                let text = format!("file {} of slot {}\n", self.sent, self.slot).repeat(50);
                body["files"] = json!([{"mime": "text/plain", "filename": "some.txt", "text": text}]);
            }
            10..=15 => body["when_busy"] = "steer".into(),
            16..=19 => body["when_busy"] = "interrupt".into(),
            _ => {}
        }
        let path = format!("/v1/sessions/{session}/prompts");
        let answer = self.ask("POST", &path, &body).await?;
        if answer.status != 202 || text_at(&answer.body, "/turn") != message {
            unexpected(&self.world, session, &format!("prompt {message} is accepted"), &answer);
            return None;
        }
        self.world.told(session, |told| told.prompts.push(message));
        count(&self.world.counters.prompts);
        Some(())
    }

    /// Waits for the end of all turns, as far as its client has seen; not for ever.
    async fn wait(&mut self, session: &str) {
        let deadline = tokio::time::Instant::now() + self.dice.millis(500, WAITS);
        while self.goes_on() && tokio::time::Instant::now() < deadline {
            let (asked, ended) = self.world.told(session, |told| {
                (told.prompts.len(), told.seen.iter().filter(|seen| seen.kind == "turn.ended").count())
            });
            if ended >= asked {
                return;
            }
            self.world.rest(Duration::from_millis(50)).await;
        }
    }

    async fn abort(&mut self, session: &str) -> Option<()> {
        let answer = self.ask("POST", &format!("/v1/sessions/{session}/abort"), &json!({})).await?;
        if answer.status != 200 {
            unexpected(&self.world, session, "an abort is accepted", &answer);
            return None;
        }
        count(&self.world.counters.aborts);
        Some(())
    }

    async fn fork(&mut self, session: &str) -> Option<()> {
        let answer = self.ask("POST", &format!("/v1/sessions/{session}/fork"), &json!({})).await?;
        let fork = self.made(&answer, "a fork is made")?;
        let (workspace, kind) = self.world.told(session, |told| (told.workspace.clone(), told.kind));
        self.world.told(&fork, |told| (told.workspace, told.kind) = (workspace, kind));
        count(&self.world.counters.forks);
        self.left.insert(0, fork.clone());
        self.prompt(&fork).await
    }

    async fn rename(&mut self, session: &str) -> Option<()> {
        let title = format!("slot {} renamed {}", self.slot, self.dice.below(1 << 30));
        self.world.told(session, |told| told.title = None);
        let answer = self.ask("PATCH", &format!("/v1/sessions/{session}"), &json!({"title": title})).await?;
        if answer.status != 200 {
            unexpected(&self.world, session, "a title is changed", &answer);
            return None;
        }
        self.world.told(session, |told| told.title = Some(title));
        Some(())
    }

    async fn delete(&mut self, session: &str) -> Option<()> {
        self.world.told(session, |told| told.deletion = Deletion::Asked);
        let path = format!("/v1/sessions/{session}");
        let answer = insist(&self.world, self.tenant(), "DELETE", &path, None).await?;
        // One that was carried out before its answer was lost.
        if !matches!(answer.status, 204 | 404) {
            unexpected(&self.world, session, "a session is deleted", &answer);
            return None;
        }
        self.world.told(session, |told| told.deletion = Deletion::Acknowledged);
        count(&self.world.counters.deletions);
        Some(())
    }
}

/// An id of the wire's form that no other prompt of the run has.
fn message_id(dice: &mut Dice, slot: usize, number: u64) -> String {
    const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let end: String = (0..14).map(|_| char::from(*dice.pick(LETTERS))).collect();
    format!("msg_{slot:04x}{number:08x}{end}")
}

/// Answers what the sessions of a tenant ask, most of the time.
pub(crate) async fn answer(world: Arc<World>, tenant: usize) {
    let mut dice = world.plan.dice(("people", tenant));
    while world.phase() < Phase::Over && world.failed().is_ok() {
        for (what, is_consent) in [("consents", true), ("questions", false)] {
            let Some(page) = insist(&world, tenant, "GET", &format!("/v1/{what}"), None).await else {
                return;
            };
            let asked = page.body[what].as_array().cloned().unwrap_or_default();
            for asked in asked {
                // Some are left to time out.
                if dice.chance(75) && settle(&world, tenant, &mut dice, &asked, is_consent).await.is_none() {
                    return;
                }
            }
        }
        world.rest(dice.millis(200, 700)).await;
    }
}

async fn settle(
    world: &World,
    tenant: usize,
    dice: &mut Dice,
    asked: &Value,
    is_consent: bool,
) -> Option<()> {
    let session = text_at(asked, "/session");
    let yes = dice.chance(70);
    let (id, path, body, word) = match is_consent {
        true => {
            let id = text_at(asked, "/consent");
            let word = if yes { "once" } else { "decline" };
            (id, format!("/v1/sessions/{session}/consents/{id}"), json!({"answer": word}), word)
        }
        false => {
            let id = text_at(asked, "/question");
            let body = if yes { json!({"answers": [["left"]]}) } else { json!({"reject": true}) };
            let word = if yes { "answered" } else { "rejected" };
            (id, format!("/v1/sessions/{session}/questions/{id}"), body, word)
        }
    };
    let answer = insist(world, tenant, "POST", &path, Some(&body)).await?;
    match answer.status {
        204 => {
            world.told(session, |told| told.answers.insert(id.to_owned(), word));
            count(&world.counters.answers);
        }
        // It timed out, its turn was aborted, its session is gone, or this very answer was taken before it was lost.
        404 | 409 => {}
        _ => unexpected(world, session, &format!("an answer to {id} is taken"), &answer),
    }
    Some(())
}
