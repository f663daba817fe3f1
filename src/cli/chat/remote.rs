//! A server answers: this program's own, or another one that speaks OpenAI's chat API.
//!
//! Owns: the request over HTTP and the reading of its events.
//! Always true: stopping closes the connection, which frees the server's slot.
//! Not here: the loop (`chat`).

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};

use super::{ChatArgs, Partner, Piece, wire};
use crate::engine::Cancel;
use crate::error::{Error, Result};
use crate::text::Message;

/// How often an answer looks whether it was stopped while nothing comes.
const LOOK: Duration = Duration::from_millis(50);
/// The most bytes of an answer that is no stream.
const MOST_BYTES: usize = 1 << 20;

/// See the file's head.
pub(super) struct Remote {
    runtime: tokio::runtime::Runtime,
    authority: String,
    key: Option<String>,
    /// All fields but the messages.
    fields: Map<String, Value>,
    /// Name of the field that carries the server's thinking, once it has sent some.
    reasoning: Option<&'static str>,
}

impl Remote {
    /// Asks the server for its model's name.
    pub(super) fn new(url: &str, args: &ChatArgs) -> Result<Remote> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("cannot start the client"))?;
        let mut remote = Remote {
            runtime,
            authority: authority(url)?,
            key: args.api_key.clone(),
            fields: fields(args)?,
            reasoning: None,
        };
        let named = args.model.folder().map(|name| name.to_string_lossy().into_owned());
        let model = match named {
            Some(name) => name,
            None => remote.first_model()?,
        };
        remote.fields.insert("model".into(), model.into());
        Ok(remote)
    }

    fn first_model(&self) -> Result<String> {
        let list = self.runtime.block_on(async {
            let response = self.send(Method::GET, "/v1/models", Bytes::new()).await?;
            checked(response).await.map(whole)?.await
        })?;
        let name = list["data"][0]["id"].as_str().map(str::to_string);
        name.ok_or_else(|| Error::invalid(format!("{} lists no model: name one with -m", self.authority)))
    }

    /// On a connection of its own, which ends with the response.
    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>> {
        let failed = |error: &dyn std::fmt::Display| Error::Io {
            what: format!("cannot talk to {}", self.authority),
            source: std::io::Error::other(error.to_string()),
        };
        let address = match self.authority.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => self.authority.clone(),
            _ => format!("{}:80", self.authority),
        };
        let socket = tokio::net::TcpStream::connect(&address).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(|error| failed(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("the connection ended: {error}");
            }
        });
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.authority);
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(body));
        let request = request.map_err(|error| failed(&error))?;
        sender.send_request(request).await.map_err(|error| failed(&error))
    }
}

impl Partner for Remote {
    fn answer(
        &mut self,
        messages: &[Message],
        stop: &Cancel,
        say: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut body = self.fields.clone();
        let spelt = |message: &Message| {
            let mut value = wire(message);
            if let Value::Object(fields) = &mut value
                && let Some(thought) = fields.remove("reasoning_content")
                // A server that never sent thinking might refuse the field.
                && let Some(name) = self.reasoning
            {
                fields.insert(name.into(), thought);
            }
            value
        };
        body.insert("messages".into(), messages.iter().map(spelt).collect());
        let body = Bytes::from(Value::Object(body).to_string());
        let mut reasoning = self.reasoning;
        let answered = self.runtime.block_on(async {
            let response = tokio::select! {
                response = self.send(Method::POST, "/v1/chat/completions", body) => checked(response?).await?,
                () = stopped(stop) => return Ok(()),
            };
            let mut body = response.into_body();
            let mut events = Events::default();
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    () = stopped(stop) => return Ok(()),
                };
                let Some(frame) = frame else {
                    return Err(Error::invalid("the server closed the connection before the answer's end"));
                };
                let frame = frame.map_err(|error| Error::invalid(format!("the answer was cut short: {error}")))?;
                let Some(data) = frame.data_ref() else { continue };
                for data in events.push(data) {
                    if data == "[DONE]" {
                        return Ok(());
                    }
                    show(&data, &mut reasoning, say)?;
                }
            }
        });
        self.reasoning = reasoning;
        answered
    }
}

/// Says what one event holds.
fn show(data: &str, reasoning: &mut Option<&'static str>, say: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()> {
    let event: Value = serde_json::from_str(data)
        .map_err(|error| Error::invalid(format!("the server sent an event that is not JSON: {error}")))?;
    if let Some(error) = event.get("error") {
        return Err(Error::invalid(format!("the server says: {}", said(error))));
    }
    let delta = &event["choices"][0]["delta"];
    for name in ["reasoning_content", "reasoning"] {
        if let Some(text) = delta[name].as_str().filter(|text| !text.is_empty()) {
            *reasoning = Some(name);
            say(Piece::Reasoning(text))?;
            break;
        }
    }
    match delta["content"].as_str().filter(|text| !text.is_empty()) {
        Some(text) => say(Piece::Content(text)),
        None => Ok(()),
    }
}

async fn stopped(stop: &Cancel) {
    while !stop.is_cancelled() {
        tokio::time::sleep(LOOK).await;
    }
}

/// The response, if it is a success.
async fn checked(response: Response<Incoming>) -> Result<Response<Incoming>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = whole(response).await.unwrap_or_default();
    Err(Error::invalid(format!("the server answers {status}: {}", said(&body["error"]))))
}

async fn whole(response: Response<Incoming>) -> Result<Value> {
    let wrong =
        |problem: &dyn std::fmt::Display| Error::invalid(format!("the server's answer cannot be used: {problem}"));
    let body = http_body_util::Limited::new(response.into_body(), MOST_BYTES);
    let bytes = body.collect().await.map_err(|error| wrong(&error))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| wrong(&error))
}

/// The sentence of an error object.
fn said(error: &Value) -> String {
    error["message"].as_str().map_or_else(|| error.to_string(), str::to_string)
}

/// `HOST:PORT` of a base address.
fn authority(url: &str) -> Result<String> {
    let wrong = |problem: &str| Error::invalid(format!("--url {url}: {problem}"));
    let uri: Uri = url.parse().map_err(|_| wrong("use http://HOST:PORT"))?;
    match (uri.scheme_str(), uri.authority(), uri.path()) {
        (Some("https"), ..) => Err(wrong("this program speaks http alone: put a proxy or an SSH tunnel between")),
        (Some("http"), Some(authority), "" | "/" | "/v1" | "/v1/") => Ok(authority.to_string()),
        (Some("http"), Some(_), _) => Err(wrong("leave the path out")),
        _ => Err(wrong("use http://HOST:PORT")),
    }
}

/// What is the same for every turn.
fn fields(args: &ChatArgs) -> Result<Map<String, Value>> {
    let sampling = &args.sampling;
    let short = |value: f32| value.to_string().parse::<f64>().unwrap_or_else(|_| value.into());
    let given = [
        ("max_tokens", args.max_tokens.map(Value::from)),
        ("temperature", sampling.temperature.map(|v| short(v).into())),
        ("top_p", sampling.top_p.map(|v| short(v).into())),
        ("top_k", sampling.top_k.map(Value::from)),
        ("min_p", sampling.min_p.map(|v| short(v).into())),
        ("repetition_penalty", sampling.repetition_penalty.map(|v| short(v).into())),
        ("presence_penalty", sampling.presence_penalty.map(|v| short(v).into())),
        ("frequency_penalty", sampling.frequency_penalty.map(|v| short(v).into())),
        ("seed", sampling.seed.map(Value::from)),
        ("reasoning_effort", args.thinking.effort().map(Value::from)),
        ("chat_template_kwargs", args.thinking.enabled().map(|think| json!({"enable_thinking": think}))),
    ];
    if !sampling.logit_bias.is_empty() {
        return Err(Error::invalid("--logit-bias names ids of a model that is loaded here: leave it out with --url"));
    }
    let mut fields = Map::from_iter([("stream".to_string(), Value::from(true))]);
    fields.extend(given.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))));
    Ok(fields)
}

/// Server-sent events, cut as the network likes.
#[derive(Default)]
struct Events {
    /// A line that is not complete.
    rest: Vec<u8>,
}

impl Events {
    /// The data of the lines that `bytes` complete; comments and names are left out.
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
        let rest = self.rest.split_off(end + 1);
        let complete = std::mem::replace(&mut self.rest, rest);
        let text = String::from_utf8_lossy(&complete);
        text.lines().filter_map(|line| line.strip_prefix("data:")).map(|data| data.trim().to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_the_network_cuts_them() {
        let text = ": working\n\ndata: {\"a\": \"é\"}\n\nevent: x\r\ndata:[DONE]\r\n\r\n".as_bytes();
        for size in 1..=text.len() {
            let mut events = Events::default();
            let all: Vec<String> = text.chunks(size).flat_map(|chunk| events.push(chunk)).collect();
            assert_eq!(all, ["{\"a\": \"é\"}", "[DONE]"], "{size}");
        }
    }

    #[test]
    fn only_plain_http_without_a_path_is_an_address() {
        assert_eq!(authority("http://localhost:11435/v1").unwrap(), "localhost:11435");
        assert_eq!(authority("http://[::1]:80").unwrap(), "[::1]:80");
        for url in ["https://a", "localhost:80", "http://a/b", "ftp://a", ""] {
            assert!(authority(url).is_err(), "{url}");
        }
    }
}
