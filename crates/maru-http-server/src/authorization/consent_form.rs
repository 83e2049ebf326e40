//! The page on which a person decides what a client may do.

use std::collections::BTreeMap;

use super::{
    super::{
        HubState,
        pages::{Page, PageLanguage, escape},
    },
    SignedInPerson,
    consent::ClientRequest,
};
use maru_auth::{AccessRole, encode_value, redirect_host, redirect_source};
use maru_tools::{Caller, CatalogScope, OWN_SERVER_NAME};

/// What the names of the form's fields begin with that choose a server or a tool.
pub(super) const SERVER_FIELD: &str = "server.";
pub(super) const TOOL_FIELD: &str = "tool.";
/// How much of a form the chosen tools may take, beside the request of the client.
const MAX_CHOICE_BYTES: usize = 8 << 10;

/// The servers that a person may choose from.
pub(super) fn known_servers(hub: &HubState, person: &SignedInPerson) -> Vec<String> {
    let registered = hub.servers.list();
    let names = registered.iter().map(|it| it.server.name.to_string());
    let mut names: Vec<String> = names.chain([OWN_SERVER_NAME.to_owned()]).collect();
    names.retain(|it| person.principal.may_reach(it));
    names.sort();
    names
}

/// The tools that a person may choose from.
pub(super) fn known_tools(hub: &HubState, person: &SignedInPerson) -> ChoosableTools {
    let snapshot = hub.engine.catalog().snapshot();
    let caller = Caller::new(person.principal.clone(), CatalogScope::All);
    let mut choice = ChoosableTools::default();
    let mut bytes = 0;
    let visible = snapshot.visible_to(&caller);
    for tool in visible.iter().flat_map(|it| it.tools.entries()) {
        let name = format!("{}.{}", tool.server(), tool.key());
        bytes += TOOL_FIELD.len() + encode_value(&name).len() + "=on&".len();
        if bytes > MAX_CHOICE_BYTES {
            choice.is_cut = true;
            break;
        }
        let tools = choice.by_server.entry(tool.server().to_string());
        tools.or_default().push(name);
    }
    choice
}

/// What the page of a consent shows.
pub(super) struct ConsentForm<'a> {
    pub(super) language: PageLanguage,
    pub(super) query: &'a str,
    pub(super) token: &'a str,
    pub(super) requested: AccessRole,
    pub(super) servers: Vec<String>,
    pub(super) tools: ChoosableTools,
}

/// Tools as `server.tool`.
#[derive(Default)]
pub(super) struct ChoosableTools {
    by_server: BTreeMap<String, Vec<String>>,
    /// Whether there are more than fit into a form.
    is_cut: bool,
}

impl ConsentForm<'_> {
    pub(super) fn page(&self, asked: &ClientRequest, person: &SignedInPerson) -> Page {
        let language = self.language;
        let name = escape(&asked.client.metadata.name);
        let title = match language {
            PageLanguage::English => format!("Allow {name} to use maru?"),
            PageLanguage::Korean => format!("{name} 애플리케이션에 maru 사용을 허용할까요?"),
        };
        let warning = language.pick(
            "Allow this only if you have just started it yourself. maru cannot check the name of the application; check where you are sent back to.",
            "방금 직접 시작한 경우에만 허용하십시오. maru는 애플리케이션의 이름을 확인할 수 없으므로 돌아갈 주소를 확인하십시오.",
        );
        let (allow, deny) = match language {
            PageLanguage::English => ("Allow", "Deny"),
            PageLanguage::Korean => ("허용", "거부"),
        };
        let facts = self.facts(asked, person);
        let roles = self.roles(person.principal.role());
        let servers = self.server_choice(asked.request.only_server());
        let tools = self.tool_choice();
        let (query, token) = (escape(self.query), escape(self.token));
        let body = format!(
            "<h1>{title}</h1>{facts}<form method=\"post\" action=\"/oauth/consent\">\
             <input type=\"hidden\" name=\"query\" value=\"{query}\">\
             <input type=\"hidden\" name=\"form_token\" value=\"{token}\">\
             {roles}{servers}{tools}<p class=\"soft\">{warning}</p>\
             <div class=\"actions\"><button class=\"main\" name=\"decision\" value=\"allow\">{allow}</button>\
             <button name=\"decision\" value=\"deny\">{deny}</button></div></form>"
        );
        Page {
            form_target: Some(redirect_source(&asked.request.redirect_uri)),
            ..Page::new(language, "maru", body)
        }
    }

    /// Who asks, where the person is sent back to, and as whom.
    fn facts(&self, asked: &ClientRequest, person: &SignedInPerson) -> String {
        let (application, back, account, limits) = match self.language {
            PageLanguage::English => (
                "Application",
                "Sends you back to",
                "Your account",
                "Limited to",
            ),
            PageLanguage::Korean => ("애플리케이션", "돌아갈 곳", "내 계정", "계정의 제한"),
        };
        let id = if asked.client.id.contains("://") {
            format!(
                "<br><span class=\"soft\">{}</span>",
                escape(&asked.client.id)
            )
        } else {
            String::new()
        };
        let lists = person.principal.grants().map(|grants| {
            let names = grants.servers().into_iter().chain(grants.tools()).flatten();
            let names: Vec<String> = names.map(|it| escape(it)).collect();
            format!("<dt>{limits}</dt><dd>{}</dd>", names.join(", "))
        });
        format!(
            "<dl><dt>{application}</dt><dd>{}{id}</dd><dt>{back}</dt><dd><strong>{}</strong></dd>\
             <dt>{account}</dt><dd>{} ({})</dd>{}</dl>",
            escape(&asked.client.metadata.name),
            escape(redirect_host(&asked.request.redirect_uri)),
            escape(person.principal.name()),
            person.principal.role().as_str(),
            lists.unwrap_or_default(),
        )
    }

    /// The roles that the person may give, the requested one chosen.
    fn roles(&self, own: AccessRole) -> String {
        let legend = self.language.pick("It may", "허용 범위");
        let chosen = self.requested.min(own);
        let mut choices = String::new();
        for role in AccessRole::ALL.into_iter().filter(|it| *it <= own) {
            let text = match (role, self.language) {
                (AccessRole::Reader, PageLanguage::English) => "list tools and servers",
                (AccessRole::Agent, PageLanguage::English) => "list and call tools",
                (AccessRole::Admin, PageLanguage::English) => {
                    "do everything, also change servers, tools and tokens"
                }
                (AccessRole::Reader, PageLanguage::Korean) => "도구와 서버 목록 보기",
                (AccessRole::Agent, PageLanguage::Korean) => "도구 목록 보기와 호출",
                (AccessRole::Admin, PageLanguage::Korean) => {
                    "서버, 도구, 토큰 변경을 포함한 모든 작업"
                }
            };
            let name = role.as_str();
            let checked = if role == chosen { " checked" } else { "" };
            choices += &format!(
                "<label><input type=\"radio\" name=\"role\" value=\"{name}\"{checked}> {text} <span class=\"soft\">({name})</span></label>"
            );
        }
        format!("<fieldset><legend>{legend}</legend>{choices}</fieldset>")
    }

    /// All servers or some; the one that the request is for is chosen.
    fn server_choice(&self, only: Option<&str>) -> String {
        let (legend, all, some) = match self.language {
            PageLanguage::English => ("On these servers", "all that I may use", "only these:"),
            PageLanguage::Korean => ("대상 서버", "내가 쓸 수 있는 모든 서버", "다음 서버만:"),
        };
        let (all_checked, some_checked) = match only {
            None => (" checked", ""),
            Some(_) => ("", " checked"),
        };
        let mut list = String::new();
        for name in &self.servers {
            let checked = if only == Some(name) { " checked" } else { "" };
            let name = escape(name);
            list += &format!(
                "<label><input type=\"checkbox\" name=\"{SERVER_FIELD}{name}\"{checked}> {name}</label>"
            );
        }
        format!(
            "<fieldset><legend>{legend}</legend>\
             <label><input type=\"radio\" name=\"servers\" value=\"all\"{all_checked}> {all}</label>\
             <label><input type=\"radio\" name=\"servers\" value=\"some\"{some_checked}> {some}</label>\
             <div class=\"servers\">{list}</div></fieldset>"
        )
    }

    /// All tools of these servers or some; absent where there are none.
    fn tool_choice(&self) -> String {
        let (legend, all, some) = match self.language {
            PageLanguage::English => (
                "With these tools",
                "all tools of these servers",
                "only these, without prompts and resources:",
            ),
            PageLanguage::Korean => (
                "사용할 도구",
                "이 서버의 모든 도구",
                "다음 도구만(프롬프트와 리소스 제외):",
            ),
        };
        if self.tools.by_server.is_empty() {
            return String::new();
        }
        let mut list = String::new();
        for (server, tools) in &self.tools.by_server {
            let (server, count) = (escape(server), tools.len());
            list += &format!("<details><summary>{server} ({count})</summary>");
            for name in tools {
                let name = escape(name);
                list += &format!(
                    "<label><input type=\"checkbox\" name=\"{TOOL_FIELD}{name}\"> {name}</label>"
                );
            }
            list += "</details>";
        }
        if self.tools.is_cut {
            let text = self.language.pick(
                "This page shows only the first tools. An admin can limit your account to others.",
                "이 페이지는 앞쪽 도구만 보여 줍니다. 관리자가 계정을 다른 도구로 제한할 수 있습니다.",
            );
            list += &format!("<p class=\"soft\">{text}</p>");
        }
        format!(
            "<fieldset><legend>{legend}</legend>\
             <label><input type=\"radio\" name=\"tools\" value=\"all\" checked> {all}</label>\
             <label><input type=\"radio\" name=\"tools\" value=\"some\"> {some}</label>\
             <div class=\"servers\">{list}</div></fieldset>"
        )
    }
}
