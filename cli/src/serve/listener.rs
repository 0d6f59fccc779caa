//! Connections: accepting them, limiting them, and closing them when the server stops.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use super::app::App;
use super::client::Client;
use super::error::ApiError;
use super::load_history;
use super::open_connections::{OpenConnection, OpenConnections, max_connections};
use super::request_end::RequestEnd;
use super::request_start::RequestStart;
use super::routes::router;
use crate::failure::{Failure, Result};

const MAX_HEADER_BYTES: usize = 64 << 10;
/// How often memory is returned to the system.
const WATCH: Duration = Duration::from_secs(1);
/// Memory is returned after requests that took this many bytes together.
const MIN_RETURNED: u64 = 32 << 20;

/// Fails if the server cannot listen on the address. A load takes long, so this is checked before.
pub(super) fn check(address: SocketAddr) -> Result<()> {
    std::net::TcpListener::bind(address).map(drop).map_err(|error| unusable(address, &error))
}

fn unusable(address: SocketAddr, error: &io::Error) -> Failure {
    Failure::new(format!("{address}: {error}"))
        .next("choose another --port, or 0 for any; --host must be an address of this machine")
}

/// Calls `ready` with the address, and serves until `stopping` is true. Then waits until all requests
/// have ended or the grace period is over.
pub(super) async fn serve(
    address: SocketAddr,
    app: Arc<App>,
    mut stopping: watch::Receiver<bool>,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    let listener = TcpListener::bind(address).await.map_err(|error| unusable(address, &error))?;
    let address = listener.local_addr()?;
    say!("llb: listening on http://{address}");
    let max_connections = max_connections(app.limits.max_connections);
    if max_connections < app.limits.max_connections {
        say!("llb: at most {max_connections} connections, because the process may not open more");
        say!("next: raise the limit of open files (ulimit -n), or set --max-connections");
    }
    let places = Arc::new(Semaphore::new(max_connections));
    let all = OpenConnections::default();
    let (grace, read_timeout) = (app.limits.grace, app.limits.read_timeout);
    let watches = [
        tokio::spawn(Arc::clone(&app.pool).watch()),
        tokio::spawn(return_memory(Arc::clone(&app))),
        tokio::spawn(load_history::record(
            Arc::clone(&app.load_history),
            Arc::clone(&app.pool),
            Arc::clone(&app.metrics),
        )),
    ];
    let router = router(app);
    ready(address);
    let mut connections = JoinSet::new();
    loop {
        // A connection beyond the limit waits in the system's backlog.
        let place = tokio::select! {
            place = all.place(&places) => place,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, address)) => {
                let service = TowerToHyperService::new(router.clone());
                let stopping = stopping.clone();
                let client = Client::new(address.ip());
                let open = all.open(client, RequestEnd::default());
                connections.spawn(async move {
                    connection(stream, &open, service, read_timeout, stopping).await;
                    drop(place);
                });
            }
            // For example too many open files. The next attempt may succeed.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    watches.iter().for_each(tokio::task::JoinHandle::abort);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, ended).await.is_err() {
        say!("llb: {} connections were cut off", connections.len());
    }
    // Dropping the connections cancels their generations.
    connections.shutdown().await;
    Ok(())
}

/// Returns the memory of requests that have ended to the system. Never returns.
async fn return_memory(app: Arc<App>) {
    let mut returned = 0;
    loop {
        tokio::time::sleep(WATCH).await;
        let freed = app.requests.freed();
        if freed - returned >= MIN_RETURNED {
            returned = freed;
            let _ = tokio::task::spawn_blocking(llb::llama::give_back_memory).await;
        }
    }
}

/// Ends when the client closes the connection, even in the middle of a request, and when the
/// deadline of a request has passed. `read_timeout` limits the time for the request line and
/// headers, how long a connection may be idle, how long a client may read nothing of its response,
/// and how long it may send after it.
async fn connection(
    stream: TcpStream,
    open: &Arc<OpenConnection>,
    service: TowerToHyperService<axum::Router>,
    read_timeout: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let Ok((stream, watch)) = with_copy(stream) else { return };
    let (start, end) = (RequestStart::default(), open.end.clone());
    let io = TokioIo::new(Socket {
        stream,
        start: start.clone(),
        end: end.clone(),
        pending: Vec::new(),
        write_timeout: read_timeout,
        stalled: None,
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(
            io,
            service_fn(|mut request| {
                start.parsed();
                end.begin();
                request.extensions_mut().insert(end.clone());
                request.extensions_mut().insert(open.client);
                let (response, request) = (service.call(request), open.request());
                async move {
                    // The body owns `request`, which is dropped with it.
                    let owned = |body: Body| {
                        body.map_err(move |error| {
                            let _request = &request;
                            error
                        })
                    };
                    response.await.map(|response| response.map(owned))
                }
            }),
        );
    let mut connection = pin!(connection);
    // How long the client may send after its response.
    let mut close_time = read_timeout;
    let error = {
        let (mut left, mut has_left) = (pin!(client_left(&watch)), false);
        // hyper itself answers a request that the client breaks off.
        let mut gone = poll_fn(|context| {
            has_left = has_left || left.as_mut().poll(context).is_ready();
            if has_left && end.is_received() { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut is_stopping = false;
        loop {
            tokio::select! {
                // hyper comes first: it may have a response for a client that only stops sending.
                biased;
                result = connection.as_mut() => {
                    break result.err().and_then(|error| unanswered(&error, &start));
                }
                // Dropping the connection cancels its request.
                () = &mut gone => return,
                () = end.passed() => return,
                () = open.closed() => {
                    close_time = Duration::ZERO;
                    break (!start.is_empty()).then(too_slow);
                }
                _ = stopping.wait_for(|stop| *stop), if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    };
    let response = error.map(|error| raw_response(&error, &start)).unwrap_or_default();
    tokio::select! {
        // The response comes first.
        biased;
        _ = tokio::time::timeout(close_time, close(watch, &response)) => {}
        () = open.closed() => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

/// Writes a last response, and reads until the client closes the connection. Without this, the system
/// would reset a connection whose client is still sending, and the client would lose the response.
async fn close(mut stream: TcpStream, response: &[u8]) -> io::Result<()> {
    stream.write_all(response).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
}

/// The response to a request that makes hyper close the connection without a response.
fn unanswered(error: &hyper::Error, start: &RequestStart) -> Option<ApiError> {
    let (status, message) = if error.is_timeout() {
        // A connection without a request is closed without a response.
        return (!start.is_empty()).then(too_slow);
    } else if error.is_parse_version_h2() {
        (StatusCode::BAD_REQUEST, "the request is HTTP/2; set the client to HTTP/1.1")
    } else if error.is_incomplete_message() && !start.is_parsed() {
        (StatusCode::BAD_REQUEST, "the headers of the request are cut off")
    } else {
        return None;
    };
    Some(ApiError::new(status, message))
}

fn too_slow() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "the request comes too slowly")
}

/// Returns the stream and a second handle of its socket, for [`client_left`] and a last response.
fn with_copy(stream: TcpStream) -> io::Result<(TcpStream, TcpStream)> {
    let stream = stream.into_std()?;
    let copy = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, TcpStream::from_std(copy)?))
}

/// Waits until the client sends nothing more. hyper notices this only if it has read all that the
/// client has sent, and it reads a byte after a request only after its response. `watch` is a
/// handle that nothing else waits for.
async fn client_left(watch: &TcpStream) {
    while let Ok(ready) = watch.ready(Interest::READABLE).await {
        if ready.is_read_closed() {
            return;
        }
        // Waits for the next event instead of the bytes that hyper has not read yet.
        let _ = watch.try_io(Interest::READABLE, || {
            Err::<(), _>(io::Error::from(io::ErrorKind::WouldBlock))
        });
    }
}

fn raw_response(error: &ApiError, start: &RequestStart) -> Vec<u8> {
    let body = error.json(start.protocol()).to_string();
    format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\
         \r\n\r\n{body}",
        error.status,
        body.len()
    )
    .into_bytes()
}

/// A socket that adds two features to hyper. It adds a body to hyper's own errors: hyper answers a
/// request that is not HTTP with a bare status, but this server's responses always have a body. It
/// also fails if the client reads nothing for too long.
struct Socket {
    stream: TcpStream,
    start: RequestStart,
    end: RequestEnd,
    /// Bytes that must be written before anything else.
    pending: Vec<u8>,
    write_timeout: Duration,
    /// Ends the wait for the client while it reads nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, bytes);
        if sent.is_ready() {
            self.stalled = None;
            return sent;
        }
        let time = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let mut pending = std::mem::take(&mut self.pending);
            let sent = self.poll_send(context, &pending);
            let count = if let Poll::Ready(Ok(count)) = &sent { *count } else { 0 };
            drop(pending.drain(..count));
            self.pending = pending;
            if ready!(sent)? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The response that replaces one of hyper's own.
fn replacement(bytes: &[u8], start: &RequestStart) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let status = text.strip_prefix("HTTP/1.1 4")?.get(..2)?;
    let is_bare = text.ends_with("\r\n\r\n") && text.contains("content-length: 0\r\n");
    if !is_bare {
        return None;
    }
    let (status, message) = match status {
        "14" => (StatusCode::URI_TOO_LONG, "the path of the request is too long"),
        "31" => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "the headers of the request are too large",
        ),
        _ => (StatusCode::BAD_REQUEST, "the request is not HTTP/1.1"),
    };
    Some(raw_response(&ApiError::new(status, message), start))
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let new = &buffer.filled()[before..];
        if !new.is_empty() {
            self.start.read(new);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(context))?;
        let replacement = replacement(bytes, &self.start);
        self.start.answered();
        if let Some(response) = replacement {
            self.pending = response;
            // The rest is written by the flush.
            if let Poll::Ready(Err(error)) = self.poll_pending(context) {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(bytes.len()));
        }
        self.poll_send(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        self.end.flushed();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
