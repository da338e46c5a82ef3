//! `gdmedia daemon`: many receivers in one process, around the clock.

mod session;

use self::session::Play;
use super::say;
use gdmedia::daemon::api;
use gdmedia::daemon::config::{self, Loaded};
use gdmedia::daemon::nmos;
use gdmedia::daemon::{Control, Daemon, Event, EventKind, Notifier, Options};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::time;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration; files FILE.d/*.toml are read after it
    #[arg(short, long, value_name = "FILE", required_unless_present = "print_config")]
    config: Option<PathBuf>,
    /// Print every key of a configuration with its meaning and its default, and end
    #[arg(long)]
    print_config: bool,
    /// Say what is wrong with the configuration, and end: exit code 0 when nothing is
    #[arg(long)]
    check: bool,
    /// Receive what the configuration says, whatever receivers were switched to before
    #[arg(long)]
    no_resume: bool,
    /// One JSON object a line instead of text
    #[arg(long)]
    json: bool,
}

/// Between two looks at signals.
const TICK: Duration = Duration::from_millis(50);

/// Runs the verb.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.print_config {
        use std::io::Write;
        // Whoever reads may stop to.
        let _ = std::io::stdout().write_all(config::print().as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(path) = args.config.clone() else {
        return Err(Error::new(Kind::Usage, "no configuration given").cure("gdmedia daemon -c gdmedia.toml"));
    };
    let json = args.json;
    super::play::told(if args.check { check(&path, json) } else { serve(args, path) }, json)
}

fn load(path: &Path) -> Result<Loaded> {
    let loaded = config::load(
        path,
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
    )?;
    session::check(&loaded.config)?;
    Ok(loaded)
}

/// Whatever can be said without receiving.
fn check(path: &Path, json: bool) -> Result<ExitCode> {
    let loaded = load(path)?;
    loaded.config.api.check_files()?;
    if let Some(remark) = loaded.config.nmos.remark(&loaded.config.api) {
        match json {
            true => say::say!("{}", serde_json::json!({ "type": "remark", "message": remark })),
            false => say::say!("{remark}"),
        }
    }
    let count = loaded.config.receivers.len();
    let mut wrong = 0;
    for receiver in &loaded.config.receivers {
        let found = session::look_at(receiver, &loaded);
        wrong += usize::from(found.is_err());
        let (id, text) = match &found {
            Ok(text) => (&receiver.id, text.clone()),
            Err(error) => (&receiver.id, error.to_string()),
        };
        if json {
            say::say!("{}", serde_json::json!({ "type": "receiver", "id": id, "ok": found.is_ok(), "message": text }));
        } else {
            say::say!("{id}: {text}");
        }
    }
    let text = format!("{}: {count} receivers, {wrong} of them wrong", path.display());
    if json {
        say::say!("{}", serde_json::json!({ "type": "check", "receivers": count, "wrong": wrong }));
    } else {
        say::say!("{text}");
    }
    Ok(ExitCode::from(if wrong == 0 { 0 } else { Kind::Data.exit_code() }))
}

/// Until a signal ends it.
fn serve(args: Args, path: PathBuf) -> Result<ExitCode> {
    let signals = Signals::install()?;
    let first = load(&path)?;
    let opener = Play::new(&first.config)?;
    let cores = opener.describe();
    let (printer, lines) = Printer::start(args.json)?;
    // Once it is there, another configuration is one that it takes as well.
    let api: Arc<OnceLock<api::Server>> = Arc::default();
    let listening = api.clone();
    let options = Options {
        opener: Arc::new(opener),
        load: Box::new(move || {
            let loaded = load(&path)?;
            if let Some(api) = listening.get() {
                api.reload(&loaded.config.api)?;
            }
            Ok(loaded)
        }),
        // Who does not read what is said holds up nobody.
        say: Some(Box::new(move |event| drop(lines.try_send(event.clone())))),
        resume: !args.no_resume,
        state: state_folder(),
        notifier: Notifier::from_env()?,
    };
    let daemon = Arc::new(Daemon::start(options)?);
    // What shows and steers the daemon is begun here.
    let server = api::Server::open(daemon.clone(), &first.config.api).inspect_err(|_| drop(daemon.stop()))?;
    daemon.tell(cores);
    if gdmedia::daemon::is_root() {
        daemon.tell("it runs as root; a user of its own is enough, as the systemd unit has it (docs/api.md, Rights)");
    }
    first.config.nmos.remark(&first.config.api).into_iter().for_each(|remark| daemon.tell(remark));
    daemon.tell(told(&server, &first.config.api));
    let _ = api.set(server);
    let node = node(&daemon, &api, &first.config).inspect_err(|_| drop(daemon.stop()))?;
    let mut died = false;
    while !signals.end() && !died {
        std::thread::sleep(TICK);
        if signals.reload() {
            // What becomes of it is told as an event.
            drop(daemon.reload());
        }
        died = daemon.has_died();
    }
    // Controllers hear first that nothing is received here any more.
    drop(node);
    // Whoever watches sees how receivers end; that the API has ended is seen last.
    let late = daemon.stop();
    drop((api, daemon));
    printer.end();
    if died {
        return Err(Error::new(Kind::Internal, "the supervisor died").cure("please report this"));
    }
    if late.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Error::new(Kind::Output, format!("receivers did not end in time: {}", late.join(", ")))
        .cure("look for a disk, a pipe or a GStreamer element that stands still; raise daemon.stop_timeout"))
}

/// The folder that systemd gives: the first one where several are configured.
fn state_folder() -> Option<PathBuf> {
    let all = std::env::var("STATE_DIRECTORY").ok()?;
    all.split(':').next().map(PathBuf::from).filter(|folder| !folder.as_os_str().is_empty())
}

/// The daemon as an NMOS node, served by the API's server; none where the configuration wants none.
fn node(
    daemon: &Arc<Daemon>,
    api: &Arc<OnceLock<api::Server>>,
    config: &config::Config,
) -> Result<Option<nmos::Running>> {
    let settings = &config.nmos;
    let Some(server) = api.get().filter(|_| settings.enabled) else { return Ok(None) };
    let (of_api, told) = (api.clone(), daemon.clone());
    let first = server.place();
    let ptp4l = config.daemon.ptp4l.clone();
    let place = move || {
        let place = of_api.get().map_or_else(|| first.clone(), api::Server::place);
        nmos::Place { ptp4l: ptp4l.clone(), ..place }
    };
    let say = Box::new(move |text| told.tell(text));
    let state = config.state.folder.clone().or_else(state_folder);
    let node = nmos::Running::start(daemon.clone(), settings, state.as_deref(), Box::new(place), say)?;
    server.mount(node.node().clone(), node.registered());
    daemon.tell(format!("NMOS node {} below /x-nmos of the API", node.node().settings().node_id()));
    Ok(Some(node))
}

/// Where the API is.
fn told(server: &api::Server, settings: &api::Settings) -> String {
    let urls = server.urls();
    let open = settings.tokens.is_empty() && settings.listen.iter().any(|address| !address.ip().is_loopback());
    match urls.is_empty() {
        true => "there is no API: listen in [api] names no address".into(),
        false if open => format!("API at {}; whoever reaches it may see and steer everything", urls.join(" and ")),
        false => format!("API at {}", urls.join(" and ")),
    }
}

/// The thread that says what happens.
struct Printer(std::thread::JoinHandle<()>);

impl Printer {
    /// Lines that may wait for whoever reads them.
    const WAITING: usize = 4096;
    /// So long the last ones have.
    const PATIENCE: Duration = Duration::from_secs(1);

    fn start(json: bool) -> Result<(Self, SyncSender<Event>)> {
        let (to, from) = sync_channel::<Event>(Self::WAITING);
        let thread = std::thread::Builder::new()
            .name("events".into())
            .spawn(move || {
                gdmedia::daemon::give_up_capabilities();
                from.iter().for_each(|event| print(&event, json));
            })
            .map_err(|e| Error::new(Kind::Unavailable, "no thread for events").because(e))?;
        Ok((Printer(thread), to))
    }
    /// When nobody has anything to say any more.
    fn end(self) {
        let begun = Instant::now();
        while !self.0.is_finished() && begun.elapsed() < Self::PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A line for each event.
fn print(event: &Event, json: bool) {
    if json {
        let mut object = serde_json::json!(event);
        if let Some(object) = object.as_object_mut() {
            object.insert("type".into(), "event".into());
        }
        return say::say!("{object}");
    }
    let at = time::utc(event.at);
    let kind = match event.kind {
        EventKind::State | EventKind::Daemon => "",
        EventKind::Health => "health: ",
        EventKind::Sink => "sink: ",
        EventKind::Switch => "switch: ",
        EventKind::Config => "configuration: ",
    };
    let who = event.receiver.as_deref().unwrap_or("daemon");
    say::say!("{} {who}: {kind}{}", at.get(11..23).unwrap_or(&at), event.message);
}

/// What the process is told by signals.
struct Signals {
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// A second one of the same ends the process at once.
    fn install() -> Result<Self> {
        let signals = Signals { end: Arc::default(), reload: Arc::default() };
        let cannot = |e| Error::new(Kind::Internal, "no signal handler").because(e);
        for signal in [SIGINT, SIGTERM] {
            // In this order: the shutdown looks at the flag before the same signal sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 130, signals.end.clone())
                .and_then(|_| signal_hook::flag::register(signal, signals.end.clone()))
                .map_err(cannot)?;
        }
        signal_hook::flag::register(SIGHUP, signals.reload.clone()).map_err(cannot)?;
        Ok(signals)
    }
    fn end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }
    /// Once for each signal.
    fn reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}
