//! Tools that are called as tasks (revision 2025-11-25): the server answers a call with a task, which is polled, and whose
//! result is asked for when it is over. A tool whose `execution.taskSupport` is `required` can be called in no other way.

use std::time::Duration;

use rmcp::model::{ClientRequest, CustomRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::call::{Bounds, CallError};
use super::{Connection, reason_of};
use crate::text::cut;

/// The pause between two looks at a task whose server names none, and its bounds.
const PAUSE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a server has to take note that a task is not wanted any more.
const LONGEST_NOTICE: Duration = Duration::from_secs(10);
/// The longest id of a task that is sent back, in bytes.
const LONGEST_ID: usize = 1_024;

/// A task, as its server tells of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    task_id: String,
    status: String,
    #[serde(default)]
    status_message: Option<String>,
    /// In milliseconds.
    #[serde(default)]
    poll_interval: Option<f64>,
}

impl Task {
    fn read(value: Value) -> Result<Self, CallError> {
        let task: Self = serde_json::from_value(value).map_err(|error| malformed(&error.to_string()))?;
        if task.task_id.len() > LONGEST_ID {
            return Err(malformed(&format!("its id has more than {LONGEST_ID} bytes")));
        }
        Ok(task)
    }

    fn pause(&self) -> Duration {
        let wanted = self.poll_interval.and_then(|wanted| Duration::try_from_secs_f64(wanted / 1_000.0).ok());
        wanted.unwrap_or(PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

fn malformed(why: &str) -> CallError {
    CallError::Malformed(format!("a task: {}", cut(why, super::MESSAGE)))
}

impl Connection {
    /// Calls a tool as a task, and waits for its result.
    pub(super) async fn call_as_task(
        &self,
        mut params: Map<String, Value>,
        bounds: Bounds<'_>,
    ) -> Result<Value, CallError> {
        params.insert("task".to_owned(), json!({}));
        let mut created = self.request("tools/call", params, &bounds).await?;
        // A server that does not know tasks answers at once.
        let Some(task) = created.get_mut("task").map(Value::take) else { return Ok(created) };
        let mut task = Task::read(task)?;
        let id = task.task_id.clone();
        let mut deadline = Instant::now() + bounds.timeout;
        let of_task = || Map::from_iter([("taskId".to_owned(), id.as_str().into())]);
        let mut running = Running { connection: self, id: Some(id.clone()) };
        loop {
            match task.status.as_str() {
                "working" => {}
                // What it asks comes while its result is waited for.
                "input_required" => break,
                "completed" | "failed" => {
                    running.id = None;
                    break;
                }
                "cancelled" => {
                    running.id = None;
                    let why = task.status_message.map(|why| format!(": {why}")).unwrap_or_default();
                    return Err(CallError::Refused(cut(
                        &format!("the task was cancelled{why}"),
                        super::MESSAGE,
                    )));
                }
                other => return Err(malformed(&format!("its status is \"{other}\""))),
            }
            tokio::select! {
                biased;
                () = bounds.cancelled() => return Err(CallError::Cancelled),
                reason = reason_of(self.ended.clone()) => return Err(CallError::Ended(reason)),
                () = sleep_until(deadline) => return Err(CallError::TimedOut(bounds.timeout)),
                () = sleep(task.pause()) => {}
            }
            if bounds.session.is_some_and(|session| self.is_asking(session)) {
                // As long as people are asked, the server cannot go on.
                deadline = Instant::now() + bounds.timeout;
            }
            task = Task::read(self.of_task("tasks/get", of_task(), deadline, &bounds).await?)?;
        }
        let result = self.of_task("tasks/result", of_task(), deadline, &bounds).await?;
        running.id = None;
        Ok(result)
    }

    /// A request about a task that has to be over at `deadline`.
    async fn of_task(
        &self,
        method: &str,
        params: Map<String, Value>,
        deadline: Instant,
        bounds: &Bounds<'_>,
    ) -> Result<Value, CallError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.request(method, params, &Bounds { timeout: left, ..*bounds }).await {
            Err(CallError::TimedOut(_)) => Err(CallError::TimedOut(bounds.timeout)),
            other => other,
        }
    }
}

/// A task that may still be at work: its server is told when nobody wants its result any more.
struct Running<'a> {
    connection: &'a Connection,
    id: Option<String>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        // Outside of a runtime the connection ends as well.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.connection.peer.clone();
        let request = CustomRequest::new("tasks/cancel", Some(json!({"taskId": id})));
        runtime.spawn(async move {
            // A server that is gone, or that knows the task no more, needs no notice.
            let sent = peer.send_request(ClientRequest::CustomRequest(request));
            drop(tokio::time::timeout(LONGEST_NOTICE, sent).await);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_bounded_whatever_a_server_says() {
        let pause = |wanted: Value| {
            let task = json!({"taskId": "t", "status": "working", "pollInterval": wanted});
            Task::read(task).unwrap().pause()
        };
        assert_eq!(pause(json!(200)), Duration::from_millis(200));
        assert_eq!(pause(json!(0)), SHORTEST_PAUSE);
        assert_eq!(pause(json!(-5)), PAUSE);
        assert_eq!(pause(json!(1e300)), PAUSE);
        assert_eq!(pause(json!(86_400_000)), LONGEST_PAUSE);
        assert_eq!(pause(Value::Null), PAUSE);
        assert!(Task::read(json!({"status": "working"})).is_err());
        assert!(Task::read(json!({"taskId": "x".repeat(2_000), "status": "working"})).is_err());
    }
}
