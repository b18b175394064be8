//! A client of the main process's control socket.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chaton_core::clock::now_ns;
use serde_json::{json, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{timeout, timeout_at, Instant};

/// Time for an answer of the main process, which gives it from memory.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Time for the workers to say what they run. One that does not is busy, which is shown.
const RUNNING_MAX: Duration = Duration::from_millis(500);
/// How long that is shown again, so that many who look do not ask more often.
const RUNNING_KEPT_NS: u64 = 1_000_000_000;
/// A worker that was silent the last time counts as silent since then, unless nobody has looked for so long.
const WATCHED_NS: u64 = 30_000_000_000;
/// Time for the backtraces of a worker; the thread that reads them needs the GVL.
const BACKTRACES_MAX: Duration = Duration::from_secs(5);
/// Time for a worker to filter arguments, and to enqueue a job of a cron entry: longer than its store may take.
const FILTERED_MAX: Duration = Duration::from_secs(2);
const CRON_MAX: Duration = Duration::from_secs(12);
/// Bytes of an answer at most: a thousand workers, or a thousand threads with their backtraces.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// The answer without a control socket.
const OFF: &str =
    "the control socket, over which the main process is asked, is off: give control_socket a path and restart the server";
/// The longest path of a Unix socket: 108 bytes with the zero at its end (unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// Asks the main process, and through it the workers.
pub(crate) struct ControlSocket {
    /// `None`: it is off.
    path: Option<PathBuf>,
    /// What the workers ran when they were last asked.
    running: tokio::sync::Mutex<WorkerAnswers>,
}

/// What the workers say they run.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerAnswers {
    pub answers: Vec<Value>,
    /// Why nobody could be asked.
    pub error: Option<String>,
    /// When they were asked (ns); 0: never.
    at_ns: u64,
    /// Since when those are silent that were asked and have not answered (ns), by their numbers.
    silent_since_ns: HashMap<u64, u64>,
}

impl WorkerAnswers {
    /// For how long a worker has not answered; `None`: it has, or was not asked.
    pub fn silent_s(&self, worker: usize) -> Option<f64> {
        let since_ns = self.silent_since_ns.get(&(worker as u64))?;
        Some(self.at_ns.saturating_sub(*since_ns) as f64 / 1e9)
    }

    /// Takes the next answers. Who was silent the last time, and not long ago, has been silent since then.
    fn take(&mut self, asked: Result<Answers, String>, asked_at_ns: u64, now_ns: u64) {
        let watched = asked_at_ns.saturating_sub(self.at_ns) < WATCHED_NS;
        let before = std::mem::take(&mut self.silent_since_ns);
        self.at_ns = now_ns;
        let (asked, answers) = match asked {
            Ok(answers) => answers,
            Err(why) => {
                (self.answers, self.error) = (vec![], Some(why));
                return;
            }
        };
        let silent = asked.iter().filter_map(Value::as_u64).filter(|worker| {
            // As many as were asked: a worker that is replaced and its successor have one number.
            let count = |all: &[Value], number: fn(&Value) -> Option<u64>| {
                all.iter().filter(|one| number(one) == Some(*worker)).count()
            };
            count(&answers, |one| one["worker"].as_u64()) < count(&asked, Value::as_u64)
        });
        let since = |worker| before.get(&worker).copied().filter(|_| watched);
        self.silent_since_ns =
            silent.map(|worker| (worker, since(worker).unwrap_or(asked_at_ns))).collect();
        (self.answers, self.error) = (answers, None);
    }
}

/// The numbers of the workers that were asked, and the answers that came in time.
type Answers = (Vec<Value>, Vec<Value>);

impl ControlSocket {
    pub fn new(path: Option<&str>) -> Self {
        Self { path: path.map(PathBuf::from), running: tokio::sync::Mutex::default() }
    }

    /// The answer to a command.
    ///
    /// # Errors
    /// Why there is none, or why the command was refused.
    pub async fn call(&self, request: &Value) -> Result<Value, String> {
        let path = self.path.as_deref().ok_or(OFF)?;
        let answer = timeout(ANSWER_MAX, exchange(path, request)).await;
        let answer = answer.map_err(|_| "the main process does not answer".to_owned())?;
        let answer =
            answer.map_err(|error| format!("the main process cannot be asked: {error}"))?;
        if answer["ok"] == true {
            return Ok(answer);
        }
        Err(answer["error"].as_str().unwrap_or("the main process refused").to_owned())
    }

    /// What the workers run, as those say that answer in time.
    pub async fn running(&self) -> WorkerAnswers {
        let mut last = self.running.lock().await;
        let asked_at_ns = now_ns();
        if last.at_ns == 0 || asked_at_ns.saturating_sub(last.at_ns) >= RUNNING_KEPT_NS {
            let asked = self.ask(json!({ "action": "running" }), RUNNING_MAX).await;
            last.take(asked, asked_at_ns, now_ns());
        }
        last.clone()
    }

    /// What each thread of a worker does.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub async fn backtraces(&self, worker: u64) -> Result<Value, String> {
        let request = json!({ "action": "backtraces", "worker": worker });
        let answer = self.ask_one(worker, request, BACKTRACES_MAX).await?;
        Ok(json!({ "threads": answer["threads"], "running": answer["running"] }))
    }

    /// The arguments of a job as the filters of the application leave them.
    ///
    /// # Errors
    /// Why the worker does not say.
    pub async fn filter_arguments(&self, worker: u64, arguments: &str) -> Result<Value, String> {
        let request =
            json!({ "action": "filter-arguments", "worker": worker, "arguments": arguments });
        Ok(self.ask_one(worker, request, FILTERED_MAX).await?["values"].take())
    }

    /// Enqueues a job of a cron entry.
    ///
    /// # Errors
    /// Why the worker did not, or that it is not known.
    pub async fn run_cron(&self, worker: u64, name: &str) -> Result<Value, String> {
        let request = json!({ "action": "run-cron", "worker": worker, "name": name });
        self.ask_one(worker, request, CRON_MAX).await
    }

    async fn ask_one(&self, worker: u64, what: Value, within: Duration) -> Result<Value, String> {
        let (_, mut answers) = self.ask(what, within).await?;
        let answer = answers.pop().ok_or_else(|| {
            let seconds = within.as_secs();
            format!("worker {worker} has not answered within {seconds} s: code that never lets go of Ruby's lock may run")
        })?;
        match answer["ok"] == true {
            true => Ok(answer),
            false => Err(answer["error"].as_str().unwrap_or("the worker refused").to_owned()),
        }
    }

    /// Workers answer on a socket of our own; those that do not in time are left out.
    async fn ask(&self, mut what: Value, within: Duration) -> Result<Answers, String> {
        let beside = self.path.as_deref().ok_or(OFF)?;
        let socket = AnswerSocket::open(beside)
            .map_err(|error| format!("there is no place for a socket: {error}"))?;
        let until = Instant::now() + within;
        what["command"] = json!("ask");
        what["reply_to"] = json!(socket.path);
        let asked = self.call(&what).await?["asked"].as_array().cloned().unwrap_or_default();
        let mut answers = Vec::new();
        while answers.len() < asked.len() {
            match timeout_at(until, socket.answer()).await {
                Ok(Ok(answer)) => answers.push(answer),
                // It broke off; the others may still answer.
                Ok(Err(_)) => {}
                Err(_) => break,
            }
        }
        Ok((asked, answers))
    }
}

async fn exchange(path: &Path, request: &Value) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(format!("{request}\n").as_bytes()).await?;
    read(stream).await
}

async fn read(stream: impl AsyncRead + Unpin) -> io::Result<Value> {
    let mut bytes = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).await?;
    // A line; a body that may follow is not wanted here.
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(serde_json::from_slice(line)?)
}

/// A socket in a directory of its own, which only its owner can enter; both are removed at the end.
struct AnswerSocket {
    listener: UnixListener,
    folder: PathBuf,
    path: PathBuf,
}

impl AnswerSocket {
    /// Beside the control socket, where the workers see it though a service manager may hide other
    /// directories, or else where temporary files are.
    fn open(beside: &Path) -> io::Result<Self> {
        let first = beside.parent().unwrap_or(Path::new("/")).to_owned();
        Self::open_in(&first).or_else(|_| Self::open_in(&std::env::temp_dir()))
    }

    fn open_in(place: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = place.join(format!("cd{}-{number}", std::process::id()));
        let path = folder.join("s");
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        DirBuilder::new().mode(0o700).create(&folder)?;
        match UnixListener::bind(&path) {
            Ok(listener) => Ok(Self { listener, folder, path }),
            Err(error) => {
                let _ = std::fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    async fn answer(&self) -> io::Result<Value> {
        read(self.listener.accept().await?.0).await
    }
}

impl Drop for AnswerSocket {
    fn drop(&mut self) {
        // What cannot be removed is left, which harms nothing.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_control_socket_the_answer_says_what_to_do() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(ControlSocket::new(None).call(&json!({})));
        assert!(answer.unwrap_err().contains("give control_socket a path"));
    }

    #[test]
    fn a_worker_is_silent_since_it_was_first_asked_in_vain() {
        let (second, mut last) = (1_000_000_000, WorkerAnswers::default());
        let answer = |worker: u64| json!({ "worker": worker, "ok": true });
        let asked = || vec![json!(0), json!(1)];
        let silence = |last: &WorkerAnswers| [0, 1].map(|worker| last.silent_s(worker));
        last.take(Ok((asked(), vec![answer(0)])), 100 * second, 101 * second);
        assert_eq!(silence(&last), [None, Some(1.0)]);
        last.take(Ok((asked(), vec![answer(0)])), 110 * second, 111 * second);
        assert_eq!(silence(&last), [None, Some(11.0)]);
        // Nobody looked for an hour, in which it may have answered.
        last.take(Ok((asked(), vec![answer(0)])), 3600 * second, 3601 * second);
        assert_eq!(silence(&last), [None, Some(1.0)]);
        last.take(Ok((asked(), vec![answer(1), answer(0)])), 3602 * second, 3602 * second);
        assert_eq!(silence(&last), [None, None]);
        // Who was not asked is not silent.
        last.take(Err("the main process does not answer".to_owned()), 3603 * second, 3608 * second);
        assert_eq!((silence(&last), last.answers.len()), ([None, None], 0));
        assert!(last.error.is_some());
        // An old process of the number has answered, its successor has not.
        let both = vec![json!(0), json!(0)];
        last.take(Ok((both, vec![answer(0)])), 3609 * second, 3610 * second);
        assert_eq!(silence(&last), [Some(1.0), None]);
    }

    #[test]
    fn answers_are_collected_beside_the_control_socket_and_nothing_is_left() {
        let folder = std::env::temp_dir().join(format!("control-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("c.sock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answers = runtime.block_on(async {
            let server = UnixListener::bind(&path).unwrap();
            let asked = tokio::spawn(async move {
                let (mut client, _) = server.accept().await.unwrap();
                let mut bytes = vec![0; 4096];
                let length = client.read(&mut bytes).await.unwrap();
                let request: Value = serde_json::from_slice(&bytes[..length]).unwrap();
                let to = request["reply_to"].as_str().unwrap().to_owned();
                let mut broken = UnixStream::connect(&to).await.unwrap();
                broken.write_all(b"{").await.unwrap();
                drop(broken);
                let mut worker = UnixStream::connect(&to).await.unwrap();
                worker.write_all(b"{\"worker\":3,\"running\":[]}\nbody").await.unwrap();
                client.write_all(b"{\"ok\":true,\"asked\":[3]}\n").await.unwrap();
            });
            let control = ControlSocket::new(path.to_str());
            let answers =
                control.ask(json!({ "action": "running" }), Duration::from_secs(60)).await;
            asked.await.unwrap();
            answers
        });
        assert_eq!(answers.unwrap().1, [json!({ "worker": 3, "running": [] })]);
        assert_eq!(
            std::fs::read_dir(&folder).unwrap().count(),
            1,
            "only the control socket is left"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
