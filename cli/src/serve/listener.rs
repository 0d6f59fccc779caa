//! Connections: accepting them, their limits, and how they end when the server stops.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::app::{self, App};
use super::error::{ApiError, Protocol};
use crate::failure::{Failure, Result};

const MAX_HEADER_BYTES: usize = 64 << 10;

/// Serves until `stopping` is true, and then until all requests are over or the grace has passed.
pub(super) async fn serve(
    address: SocketAddr,
    app: Arc<App>,
    mut stopping: watch::Receiver<bool>,
) -> Result<()> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::new(format!("{address}: {error}")).next("choose another --port, or 0 for any")
    })?;
    let address = listener.local_addr()?;
    say!("llb: listening on http://{address}");
    let places = Arc::new(Semaphore::new(app.limits.max_connections));
    let (grace, read_timeout) = (app.limits.grace, app.limits.read_timeout);
    let router = app::router(app);
    let mut connections = JoinSet::new();
    loop {
        // A connection beyond the limit waits in the backlog of the system.
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let service = TowerToHyperService::new(router.clone());
                let stopping = stopping.clone();
                connections.spawn(async move {
                    connection(stream, service, read_timeout, stopping).await;
                    drop(place);
                });
            }
            // Such as too many open files. The next attempt may succeed.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all).await.is_err() {
        say!("llb: {} connections were cut off", connections.len());
    }
    // Dropping the connections cancels their generations.
    connections.shutdown().await;
    Ok(())
}

/// `read_timeout` is the time for the line and the headers of a request, and the time that a
/// connection may be idle.
async fn connection(
    stream: TcpStream,
    service: TowerToHyperService<axum::Router>,
    read_timeout: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let Ok((stream, mut copy)) = with_copy(stream) else { return };
    let io = TokioIo::new(Socket { stream, pending: Vec::new() });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let mut is_stopping = false;
    let result = loop {
        tokio::select! {
            result = connection.as_mut() => break result,
            _ = stopping.wait_for(|stop| *stop), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    };
    // hyper closes such a connection without a word.
    if result.is_err_and(|error| error.is_timeout()) {
        let error = ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "the headers of the request come too slowly",
        );
        // A few bytes fit into the buffer of the system, or the client does not read.
        let _ = copy.write(&raw_response(&error));
    }
}

/// The stream, and a second handle of its socket.
fn with_copy(stream: TcpStream) -> io::Result<(TcpStream, std::net::TcpStream)> {
    let stream = stream.into_std()?;
    let copy = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, copy))
}

fn raw_response(error: &ApiError) -> Vec<u8> {
    let body = error.json(Protocol::OpenAi).to_string();
    format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\
         \r\n\r\n{body}",
        error.status,
        body.len()
    )
    .into_bytes()
}

/// A socket that gives hyper's own errors a body. hyper answers a request that is not HTTP by a
/// status alone. Responses of the server always have a body.
struct Socket {
    stream: TcpStream,
    /// What must be written before anything else.
    pending: Vec<u8>,
}

impl Socket {
    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &self.pending) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => drop(self.pending.drain(..count)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The response to put in place of one of hyper's own.
fn replacement(bytes: &[u8]) -> Option<Vec<u8>> {
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
    Some(raw_response(&ApiError::new(status, message)))
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll_pending(context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        if let Some(response) = replacement(bytes) {
            self.pending = response;
            // What does not fit now is written by the flush.
            if let Poll::Ready(Err(error)) = self.poll_pending(context) {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_pending(context) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.stream).poll_flush(context),
            other => other,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_pending(context) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.stream).poll_shutdown(context),
            other => other,
        }
    }
}
