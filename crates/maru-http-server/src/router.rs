//! Access control in front of every route: Host, Origin, token and role are checked before
//! anything else.

use std::{convert::Infallible, future::ready, net::IpAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header},
    response::Response,
};
use futures_util::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use hyper::body::Incoming;
use tower_service::Service as _;

use super::{
    HubState,
    admission::ConnectionSlot,
    audit::{self, ChangeActor},
    body::RequestMemory,
    console, cors, local_program, rejection,
    request_observer::{ObservedResponse, RequestObserver},
    routes::{self, RouteMatch, RouteRule, RouteRules},
};
use maru_auth::{Error, Principal};

/// The router of all routes behind access control.
#[derive(Clone, Debug)]
pub struct GuardedRouter {
    hub: Arc<HubState>,
    rules: RouteRules,
    router: Router,
    /// The address of the client; absent on the local socket.
    remote_ip: Option<IpAddr>,
    /// The slot of the connection, where connections are limited.
    slot: Option<Arc<ConnectionSlot>>,
}

/// A request that passed access control.
struct AdmittedRequest {
    /// `None` on routes that need no authentication.
    principal: Option<Principal>,
    /// The rule of a change, which is audited.
    change: Option<RouteRule>,
    /// Whether it counts against the limits of its principal.
    counts_against_quota: bool,
}

/// Where clients of Anthropic's API send the token.
const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

type ResponseFuture = BoxFuture<'static, Result<Response, Infallible>>;

/// The address of the client, as an extension of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) Option<IpAddr>);

/// Why a request did not pass access control.
enum AdmitError {
    /// The request is answered with this response.
    Rejected(Box<Response>),
    /// The caller, or the key or grant of its token, is not known yet.
    NotYetKnown(Error),
}

/// What a request is checked against.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallerData {
    /// What this hub knows.
    Known,
    /// What it has just read.
    Fresh,
}

impl GuardedRouter {
    /// Builds the router of all routes.
    pub fn new(hub: Arc<HubState>) -> Self {
        let (rules, router) = routes::build(&hub);
        Self {
            hub,
            rules,
            router,
            remote_ip: None,
            slot: None,
        }
    }

    /// A router that serves one connection from this address.
    pub(super) fn for_connection(&self, remote_ip: IpAddr, slot: Arc<ConnectionSlot>) -> Self {
        Self {
            remote_ip: Some(remote_ip),
            slot: Some(slot),
            ..self.clone()
        }
    }

    /// The slot of the served connection.
    pub(super) fn slot(&self) -> Option<&Arc<ConnectionSlot>> {
        self.slot.as_ref()
    }

    /// Checks Host, Origin, token and role of a request.
    fn admit(
        &self,
        route: RouteMatch<'_>,
        request: &Request<Incoming>,
        data: CallerData,
    ) -> Result<AdmittedRequest, AdmitError> {
        let path = request.uri().path();
        self.hub
            .reloadable()
            .origin_policy
            .check(request.uri(), request.headers())
            .map_err(|(status, message)| rejection::error_response(path, status, message))?;
        let headers = request.headers();
        let is_repeated = |name: &HeaderName| headers.get_all(name).iter().nth(1).is_some();
        if is_repeated(&header::AUTHORIZATION) || is_repeated(&API_KEY_HEADER) {
            // A proxy that reads the other one would see another caller.
            let message =
                "the request has more than one Authorization or x-api-key header; send one";
            return Err(rejection::error_response(path, StatusCode::BAD_REQUEST, message).into());
        }
        let may_be_elsewhere = data == CallerData::Known && self.hub.store.is_shared();
        if may_be_elsewhere
            && let Some(cookie) = console::session_cookie(&self.hub, headers)
            && self.hub.person_of(&cookie).is_none()
        {
            return Err(AdmitError::NotYetKnown(Error::MissingToken));
        }
        if matches!(route, RouteMatch::Rule(rule) if rule.min_role.is_none()) {
            return Ok(AdmittedRequest {
                principal: None,
                change: None,
                counts_against_quota: false,
            });
        }
        if matches!(route, RouteMatch::NotFound) && is_page_request(request) {
            return Err(console::missing_page().into());
        }
        let token = given_token(path, headers);
        let has_token = headers.contains_key(header::AUTHORIZATION) || token.is_some();
        let access = &self.hub.access;
        let uses_cookie =
            !has_token && matches!(route, RouteMatch::Rule(rule) if rule.accepts_cookie());
        let identified = if uses_cookie {
            self.hub.identify(headers)
        } else {
            access.identify(token.as_ref().map(HeaderValue::as_bytes))
        };
        let has_cookie = || uses_cookie && console::session_cookie(&self.hub, headers).is_some();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let principal = match identified {
            Ok(_) if !is_read && has_cookie() && !headers.contains_key(routes::CONSOLE_HEADER) => {
                let message = "a change by cookie needs the header x-maru-console";
                return Err(rejection::error_response(path, StatusCode::FORBIDDEN, message).into());
            }
            Ok(principal) => self.elevate_local_program(principal, &route, headers),
            Err(error @ (Error::UnknownKey | Error::UnknownGrant)) => {
                return Err(AdmitError::NotYetKnown(error));
            }
            Err(Error::UnknownToken) if may_be_elsewhere => {
                return Err(AdmitError::NotYetKnown(Error::UnknownToken));
            }
            Err(error) => return Err(rejection::unauthorized(path, access, &error).into()),
        };
        if let Some(slot) = &self.slot
            && slot.identify(!principal.is_local()).is_err()
        {
            return Err(rejection::too_many_connections(path).into());
        }
        match route {
            RouteMatch::Rule(rule) if rule.allows(&principal) => Ok(AdmittedRequest {
                principal: Some(principal),
                change: rule.is_change().then(|| rule.clone()),
                counts_against_quota: rule.counts_against_quota,
            }),
            RouteMatch::Rule(_) if token.is_none() => {
                Err(rejection::unauthorized(path, access, &Error::MissingToken).into())
            }
            RouteMatch::Rule(rule) => {
                let response = rejection::forbidden(path, access, rule, &principal);
                let actor = ChangeActor {
                    principal,
                    remote_ip: self.remote_ip,
                    rule: rule.clone(),
                };
                actor.record_denied(&self.hub, path);
                Err(response.into())
            }
            RouteMatch::MethodNotAllowed(allowed) => {
                Err(rejection::method_not_allowed(path, &allowed).into())
            }
            RouteMatch::NotFound => Err(rejection::not_found(path).into()),
        }
    }

    /// Makes a program on this machine an admin on routes that need one, where
    /// `local_admin` is on.
    fn elevate_local_program(
        &self,
        principal: Principal,
        route: &RouteMatch<'_>,
        headers: &HeaderMap,
    ) -> Principal {
        let needs_admin = matches!(route, RouteMatch::Rule(rule) if !rule.allows(&principal));
        match self.hub.access.local_admin() {
            Some(admin)
                if needs_admin
                    && principal.is_local()
                    && local_program::is_local_program(self.remote_ip, headers) =>
            {
                admin.clone()
            }
            _ => principal,
        }
    }

    /// Forwards an admitted request to its handler.
    fn forward(&self, admitted: AdmittedRequest, request: Request<Incoming>) -> ResponseFuture {
        let Some(principal) = admitted.principal else {
            let request = self.with_address(request);
            return self.router.clone().call(request).boxed();
        };
        if admitted.counts_against_quota {
            return self.clone().count_and_forward(principal, request).boxed();
        }
        let memory = RequestMemory::new(&principal);
        let request = self.with_caller(principal.clone(), &memory, request);
        if let Some(rule) = admitted.change {
            let actor = ChangeActor {
                principal,
                remote_ip: self.remote_ip,
                rule,
            };
            let response =
                audit::run_audited(Arc::clone(&self.hub), self.router.clone(), actor, request);
            return response.map(|it| Ok(memory.hold_for(it))).boxed();
        }
        let response = self.router.clone().call(request);
        response.map_ok(|it| memory.hold_for(it)).boxed()
    }

    /// Forwards a request that counts against the limits of its principal.
    async fn count_and_forward(
        mut self,
        principal: Principal,
        request: Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let path = request.uri().path();
        if let Err(exceeded) = self.hub.quota.count_request(principal.name()).await {
            return Ok(rejection::too_many_requests(path, &exceeded));
        }
        let memory = RequestMemory::new(&principal);
        let request = self.with_caller(principal, &memory, request);
        let response = self.router.call(request).await;
        response.map(|it| memory.hold_for(it))
    }

    /// Attaches the principal, its memory and the client's address to a request.
    fn with_caller(
        &self,
        principal: Principal,
        memory: &RequestMemory,
        request: Request<Incoming>,
    ) -> Request<Body> {
        let mut request = self.with_address(request);
        let extensions = request.extensions_mut();
        extensions.insert(principal);
        extensions.insert(memory.clone());
        request
    }

    fn with_address(&self, request: Request<Incoming>) -> Request<Body> {
        let mut request = request.map(Body::new);
        let address = ClientAddress(self.remote_ip);
        request.extensions_mut().insert(address);
        request
    }

    /// Counts a rejection. Closes the connection after it, unless one of its requests was
    /// admitted: its body is then not waited for, and its slot is free.
    fn reject(&self, mut rejection: Response) -> Response {
        self.hub.rejected_requests.count(rejection.status());
        if self.slot.as_ref().is_some_and(|it| !it.is_identified()) {
            let close = HeaderValue::from_static("close");
            rejection.headers_mut().insert(header::CONNECTION, close);
        }
        rejection
    }

    /// Reads what an unknown caller lacks, and checks the request once more.
    async fn retry_with_fresh_data(
        self,
        request: Request<Incoming>,
        error: Error,
    ) -> Result<Response, Infallible> {
        if matches!(error, Error::UnknownKey | Error::UnknownGrant) {
            let token = given_token(request.uri().path(), request.headers());
            let token = token.as_ref().map(HeaderValue::as_bytes);
            self.hub.access.learn(token).await;
        }
        if error != Error::UnknownKey {
            self.hub.learn_callers().await;
        }
        match self.admit(self.match_route(&request), &request, CallerData::Fresh) {
            Ok(admitted) => self.forward(admitted, request).await,
            Err(AdmitError::Rejected(rejection)) => Ok(self.reject(*rejection)),
            Err(AdmitError::NotYetKnown(error)) => {
                let path = request.uri().path();
                let rejection = rejection::unauthorized(path, &self.hub.access, &error);
                Ok(self.reject(rejection))
            }
        }
    }

    fn match_route(&self, request: &Request<Incoming>) -> RouteMatch<'_> {
        let path = request.uri().path();
        self.rules.match_request(request.method(), path)
    }

    /// Answers a request, with the headers that browsers need.
    fn respond(&self, route: RouteMatch<'_>, request: Request<Incoming>) -> ResponseFuture {
        let sends_hsts = self.hub.sends_hsts && !is_localhost(request.headers());
        let origin = cors::allowed_origin(&self.hub.reloadable().origin_policy, &request);
        let response = self.respond_to_client(route, request, origin.is_some());
        let response = match origin {
            Some(origin) => response
                .map_ok(|it| cors::with_cors_headers(it, origin))
                .boxed(),
            None => response,
        };
        if sends_hsts {
            return response.map_ok(with_hsts).boxed();
        }
        response
    }

    /// Admits a request and forwards it, or rejects it. The browser of an allowed page gets
    /// an answer to its preflight, which has no token.
    fn respond_to_client(
        &self,
        route: RouteMatch<'_>,
        request: Request<Incoming>,
        is_allowed_page: bool,
    ) -> ResponseFuture {
        if is_allowed_page && let Some(answer) = cors::preflight_response(&route, &request) {
            return ready(Ok(answer)).boxed();
        }
        match self.admit(route, &request, CallerData::Known) {
            Ok(admitted) => self.forward(admitted, request),
            Err(AdmitError::Rejected(rejection)) => ready(Ok(self.reject(*rejection))).boxed(),
            Err(AdmitError::NotYetKnown(error)) => {
                let retry = self.clone().retry_with_fresh_data(request, error);
                retry.boxed()
            }
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for GuardedRouter {
    type Response = Response;
    type Error = Infallible;
    type Future = ObservedResponse<ResponseFuture>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let route = self.match_route(&request);
        let rule = match route {
            RouteMatch::Rule(rule) => Some(rule),
            RouteMatch::MethodNotAllowed(_) | RouteMatch::NotFound => None,
        };
        let observer = RequestObserver::new(&self.hub.metrics, rule, request.headers());
        let response = observer.span().in_scope(|| self.respond(route, request));
        observer.observe(response)
    }
}

/// The token of a request, as in `Authorization`. Clients of model APIs insist on a key, so
/// the key `local` means no token there; those of Anthropic's API send it as `x-api-key`.
fn given_token(path: &str, headers: &HeaderMap) -> Option<HeaderValue> {
    let authorization = headers.get(header::AUTHORIZATION);
    if !path.starts_with("/v1/") {
        return authorization.cloned();
    }
    if let Some(token) = authorization.filter(|it| *it != "Bearer local") {
        return Some(token.clone());
    }
    let key = headers.get(&API_KEY_HEADER).filter(|it| *it != "local")?;
    HeaderValue::from_bytes(&[b"Bearer ", key.as_bytes()].concat()).ok()
}

/// Whether the request is for `localhost`, where HSTS would apply to other programs too.
fn is_localhost(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let name = host.map_or("", |it| it.split(':').next().unwrap_or_default());
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Tells browsers to use only encrypted connections (RFC 6797).
fn with_hsts(mut response: Response) -> Response {
    const HSTS_MAX_AGE: HeaderValue = HeaderValue::from_static("max-age=31536000");
    let headers = response.headers_mut();
    headers.insert(header::STRICT_TRANSPORT_SECURITY, HSTS_MAX_AGE);
    response
}

impl From<Response> for AdmitError {
    fn from(rejection: Response) -> Self {
        Self::Rejected(Box::new(rejection))
    }
}

/// Whether a browser opens a page, rather than a program that asks an API.
fn is_page_request(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get(header::ACCEPT);
    let accepted = accepted.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let path = request.uri().path();
    let is_api = ["/api/", "/v1/", "/assets/"]
        .iter()
        .any(|it| path.starts_with(it));
    request.method() == Method::GET && accepted.contains("text/html") && !is_api
}
