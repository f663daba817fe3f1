//! The socket: accepting, limits of a connection, the signals.
//!
//! Owns: the order of a server's life (listen, load, serve, drain) and how it ends.
//! Always true: the socket listens before the load begins; after the first signal nobody new is served; the second one
//! ends the process with 130.
//! Not here: what is answered (`routes`).

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tower_service::Service;

use super::{App, Options, Phase, routes, watchdog};
use crate::engine::Loaded;
use crate::error::{Error, Result};

/// How long a client may take to send a request's head; also how long an idle connection stays open.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a request's head.
const HEAD_LIMIT: usize = 64 << 10;
/// How long answers that were told to stop may take to say so.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Threads that answers may wait on.
const MOST_ANSWERS: usize = 4096;
/// Pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a server ended by itself.
pub enum Ended {
    /// After a signal, with every answer finished or told why not.
    Drained,
    /// The watchdog gave the device up; why.
    Stuck(String),
}

/// Serves until a signal. `load` runs on its own thread once the socket listens; it is called with the share done.
///
/// Errors: the address cannot be had, the load failed, `Error::Cancelled` for the second signal.
pub fn serve<L>(options: Options, load: L) -> Result<Ended>
where
    L: FnOnce(&mut dyn FnMut(f32)) -> Result<Loaded> + Send + 'static,
{
    options.check()?;
    let address = SocketAddr::new(options.host, options.port);
    let listener = TcpListener::bind(address).map_err(Error::io(format!("cannot listen on {address}")))?;
    let bound = listener.local_addr().map_err(Error::io("the socket has no address"))?;
    listener.set_nonblocking(true).map_err(Error::io("cannot set up the socket"))?;
    tracing::info!("listening on http://{bound}");

    let app = Arc::new(App::new(options));
    let loading = app.clone();
    let (report, outcome) = oneshot::channel();
    std::thread::Builder::new()
        .name("load".into())
        .spawn(move || {
            let loaded = load(&mut |share| loading.set(Phase::Loading(share)));
            let outcome = loaded.map(|loaded| loading.set(Phase::Ready(Arc::new(loaded))));
            // Nobody waits for it after a signal.
            let _ = report.send(outcome);
        })
        .map_err(Error::io("cannot start the thread that loads the model"))?;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        // One an answer, waiting ones included: the engine's own queue says when it is too many.
        .max_blocking_threads(MOST_ANSWERS)
        .enable_all()
        .build()
        .map_err(Error::io("cannot start the threads of the server"))?;
    let ended = runtime.block_on(run(app.clone(), listener, outcome));
    // Answers that still run were told to stop, or nobody wants them. Dropping the engine would wait for its step,
    // which may never end; the process does.
    std::mem::forget(app);
    runtime.shutdown_background();
    ended
}

async fn run(app: Arc<App>, listener: TcpListener, outcome: oneshot::Receiver<Result<()>>) -> Result<Ended> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::io("cannot set up the socket"))?;
    let listen = |kind| signal(kind).map_err(Error::io("cannot listen for signals"));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let connections = GracefulShutdown::new();
    let router = routes(&app);
    let mut outcome = Some(outcome);
    let mut stuck = std::pin::pin!(watchdog::watch(&app));

    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => connect(&connections, &router, socket, peer),
                Err(error) => {
                    tracing::warn!("a connection was not accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            loaded = wait(&mut outcome) => match loaded {
                Some(Err(error)) => return Err(error),
                Some(Ok(())) => tracing::info!("ready"),
                None => return Err(Error::model("the load met a bug; the message above says where")),
            },
            message = &mut stuck => {
                app.fault.send_replace(Some(message.clone()));
                // Whoever waits for an answer is told why there is none.
                let _ = tokio::time::timeout(LAST_WORDS, connections.shutdown()).await;
                return Ok(Ended::Stuck(message));
            }
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    drop(listener);
    let grace = app.options.grace;
    tracing::info!("draining: running answers have {} s to finish; a second signal ends them", grace.as_secs_f64());
    let drained = async {
        let mut closed = std::pin::pin!(connections.shutdown());
        tokio::select! {
            () = &mut closed => return,
            () = tokio::time::sleep(grace) => tracing::warn!("the grace has passed: running answers are stopped"),
        }
        app.stop_all();
        tokio::select! {
            () = closed => {}
            () = tokio::time::sleep(LAST_WORDS) => {}
        }
    };
    tokio::select! {
        () = drained => Ok(Ended::Drained),
        _ = interrupt.recv() => Err(Error::Cancelled),
        _ = terminate.recv() => Err(Error::Cancelled),
    }
}

/// The load's outcome, once; `None` if its thread died.
async fn wait(outcome: &mut Option<oneshot::Receiver<Result<()>>>) -> Option<Result<()>> {
    match outcome {
        Some(receiver) => {
            let result = receiver.await.ok();
            *outcome = None;
            result
        }
        None => std::future::pending().await,
    }
}

fn connect(connections: &GracefulShutdown, router: &Router, socket: tokio::net::TcpStream, peer: SocketAddr) {
    // Tokens are small, and each must leave at once.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!("{peer}: small packets may be late: {error}");
    }
    let router = router.clone();
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (mut router, mut request) = (router.clone(), request.map(Body::new));
        request.extensions_mut().insert(peer);
        async move { router.call(request).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(socket), service);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("{peer}: the connection ended: {error}");
        }
    });
}
