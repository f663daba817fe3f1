//! Who may ask, and how every answer leaves.
//!
//! Owns: the checks of Host, Origin and key; CORS; the shape of errors; the access log.
//! Always true: nothing behind the guard runs for a request that it turned away; an error leaves in its API's shape.
//! Not here: checks of bodies (`body`, `wire`).

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::error::{ApiError, Shape};
use super::{App, Options, page};

impl IntoResponse for ApiError {
    /// Carries the error to [`observe`], which knows the shape.
    fn into_response(self) -> Response {
        let mut response = self.response(Shape::OpenAi);
        response.extensions_mut().insert(self);
        response
    }
}

/// Lets a request through, or says why not.
pub async fn admit(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiError> {
    let path = request.uri().path();
    check_host(request.headers(), &app.options)?;
    check_origin(request.method(), request.headers(), &app.options)?;
    // A supervisor and a browser show no key, and what they get tells nothing about anyone's requests.
    if path != "/health" && !page::PATHS.contains(&path) {
        check_key(request.headers(), &app.options)?;
    }
    Ok(next.run(request).await)
}

/// A page of another site can point its own name at this machine; then the name gives it away.
fn check_host(headers: &HeaderMap, options: &Options) -> Result<(), ApiError> {
    if !options.host.is_loopback() || !options.keys.is_empty() {
        return Ok(());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let local = host.parse::<Authority>().is_ok_and(|authority| {
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    });
    match local {
        true => Ok(()),
        false => {
            let message =
                format!("the host '{host}' is not this machine: use 127.0.0.1 or localhost, or start with a key");
            Err(ApiError::new(StatusCode::FORBIDDEN, "host_not_allowed", message))
        }
    }
}

fn check_origin(method: &Method, headers: &HeaderMap, options: &Options) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let origin = origin.to_str().unwrap_or("null");
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let same = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
    let listed = options.cors_origins.iter().any(|allowed| allowed == "*" || allowed == origin);
    match same || listed {
        true => Ok(()),
        false => {
            let message = format!("pages of '{origin}' may not use this server: allow them with --cors-origin");
            Err(ApiError::new(StatusCode::FORBIDDEN, "origin_not_allowed", message))
        }
    }
}

fn check_key(headers: &HeaderMap, options: &Options) -> Result<(), ApiError> {
    if options.keys.is_empty() {
        return Ok(());
    }
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
    });
    let shown = bearer.or_else(|| headers.get("x-api-key").map(HeaderValue::as_bytes));
    let refusal = match shown {
        // Every key is compared, so that the time does not say which one is near.
        Some(shown) if options.keys.iter().fold(false, |found, key| found | key.opens(shown)) => return Ok(()),
        Some(_) => "the key is wrong",
        None => "a key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
    };
    Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", refusal))
}

/// Answers for pages of other sites; none without `--cors-origin`.
pub fn cors(options: &Options) -> Option<CorsLayer> {
    let origins = match options.cors_origins.as_slice() {
        [] => return None,
        list if list.iter().any(|origin| origin == "*") => AllowOrigin::any(),
        list => AllowOrigin::list(list.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())),
    };
    let headers = [header::AUTHORIZATION, header::CONTENT_TYPE, HeaderName::from_static("x-api-key")];
    Some(CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST]).allow_headers(headers))
}

/// Headers that keep a browser from guessing.
pub async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// 404 for a path without a route.
pub async fn unknown(request: Request) -> ApiError {
    let message = format!("there is no route {}: see the README for those there are", request.uri().path());
    ApiError::new(StatusCode::NOT_FOUND, "unknown_route", message)
}

/// 405 for a route that wants another method.
pub async fn wrong_method(request: Request) -> ApiError {
    let message = format!("{} does not take {}: use the other of GET and POST", request.uri().path(), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// Gives errors their shape, and counts and logs every request when its last byte has left or its client has.
pub async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let path = request.uri().path().to_string();
    let method = request.method().clone();
    let peer = request.extensions().get::<SocketAddr>().copied();
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", |route| route.as_str()).to_string();
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        app.metrics.refused(error.code.unwrap_or("error"));
        let allowed = response.headers_mut().remove(header::ALLOW);
        let extra: Vec<_> = response.headers().iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        response = error.response(Shape::of(&path));
        for (name, value) in extra {
            // The body's own headers stand already.
            if name != header::CONTENT_LENGTH {
                response.headers_mut().entry(name).or_insert(value);
            }
        }
        if let Some(allowed) = allowed {
            response.headers_mut().insert(header::ALLOW, allowed);
        }
    }
    let entry = Entry { app, method, path, route, status: response.status(), peer, began, bytes: 0, whole: false };
    response.map(|body| Body::new(Logged { body, entry }))
}

/// One line of the access log, written when it is dropped.
struct Entry {
    app: Arc<App>,
    method: Method,
    path: String,
    route: String,
    status: StatusCode,
    peer: Option<SocketAddr>,
    began: Instant,
    bytes: u64,
    whole: bool,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Entry { app, method, path, route, status, peer, began, bytes, whole } = self;
        app.metrics.request(route, status.as_u16());
        let peer = peer.map_or("-".into(), |peer| peer.ip().to_string());
        let ms = began.elapsed().as_secs_f64() * 1000.0;
        let cut = if *whole { "" } else { ", cut short by the client" };
        // A path is the client's text: quoted, so that it cannot forge a line.
        tracing::info!("{peer} {method} {path:?} {} {bytes} bytes in {ms:.1} ms{cut}", status.as_u16());
    }
}

/// A body whose end is noticed.
struct Logged {
    body: Body,
    entry: Entry,
}

impl HttpBody for Logged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.entry.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                self.entry.whole |= self.body.is_end_stream();
            }
            Poll::Ready(None) => self.entry.whole = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
