//! `postgres://user:password@host:port/database`, and how to name it to people.

use std::error::Error as _;

use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

use crate::Error;

const NO_TLS_MESSAGE: &str = "it asks for TLS, which maru does not speak to PostgreSQL yet; \
    use sslmode=disable on a network that you trust";

/// An address that can be tried. Its `Debug` leaves the password out.
#[derive(Debug)]
pub(crate) struct PostgresUrl {
    config: Config,
}

impl PostgresUrl {
    /// The errors quote nothing, because the password could be anywhere in what
    /// cannot be read.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Err(Error::Address(why.to_owned()));
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|it| url.starts_with(it))
        {
            return wrong("it does not start with postgres://");
        }
        if url.matches('@').count() > 1 {
            return wrong("it has more than one @; in a name or a password write %40");
        }
        let config: Config = match url.parse() {
            Ok(config) => config,
            Err(error) => return wrong(&parse_error_text(&error)),
        };
        if config.get_ssl_mode() == SslMode::Require {
            return wrong(NO_TLS_MESSAGE);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return wrong("it names no host; example: postgres://user:password@localhost/maru");
        }
        Ok(Self { config })
    }

    /// Host, port and database.
    pub(crate) fn redacted_location(&self) -> String {
        let config = &self.config;
        let ports = config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).unwrap_or(&5432);
        let hosts: Vec<String> = match config.get_hosts() {
            [] => config
                .get_hostaddrs()
                .iter()
                .map(|it| it.to_string())
                .collect(),
            hosts => hosts.iter().map(host_name).collect(),
        };
        let hosts = hosts.iter().enumerate();
        let hosts: Vec<String> = hosts
            .map(|(at, host)| format!("{host}:{}", port(at)))
            .collect();
        let database = config.get_dbname().or(config.get_user());
        let database = database.unwrap_or("(default)");
        format!("in PostgreSQL at {}, database {database}", hosts.join(","))
    }

    /// The same, with settings for its sessions; those in the address win.
    pub(super) fn into_config(self, settings: &[(&str, &str)]) -> Config {
        let mut config = self.config;
        let ours = settings
            .iter()
            .map(|(name, value)| format!("-c {name}={value}"));
        let given = config.get_options().map(str::to_owned);
        let all: Vec<String> = ours.chain(given).collect();
        config.options(all.join(" "));
        config
    }
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

fn parse_error_text(error: &tokio_postgres::Error) -> String {
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    if why.contains("sslmode") {
        NO_TLS_MESSAGE.to_owned()
    } else {
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_names_host_port_and_database_and_no_password() {
        let cases = [
            (
                "postgres://u:hush@db.example/maru",
                "db.example:5432, database maru",
            ),
            (
                "postgresql://u:hu%40sh@[::1]:5433/m",
                "::1:5433, database m",
            ),
            ("postgres://u:hush@a:1,b:2/m", "a:1,b:2, database m"),
            (
                "postgres:///m?host=/run/pg&password=hush",
                "/run/pg:5432, database m",
            ),
            ("postgres://u:hush@a", "a:5432, database u"),
        ];
        for (url, place) in cases {
            let address = PostgresUrl::parse(url).unwrap();
            assert_eq!(
                address.redacted_location(),
                format!("in PostgreSQL at {place}")
            );
            assert!(!format!("{address:?}").contains("hush"), "{address:?}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_without_quoting_it() {
        let cases = [
            ("mysql://u:hush@a/m", "postgres://"),
            ("host=a password=hush", "postgres://"),
            ("postgres://u:hu@sh@a/m", "%40"),
            ("postgres://u:hush@a:port/m", "`port`"),
            ("postgres://u:hush@a/m?hat=1", "`hat`"),
            ("postgres://u:hush@", "no host"),
            ("postgres://u:hush@a/m?sslmode=require", "TLS"),
            ("postgres://u:hush@a/m?sslmode=verify-full", "TLS"),
        ];
        for (url, expected) in cases {
            let why = PostgresUrl::parse(url).unwrap_err().to_string();
            assert!(why.contains(expected), "{url}: {why}");
            assert!(!why.contains("hu"), "{why}");
        }
    }

    #[test]
    fn settings_in_the_address_win() {
        let url = "postgres://a/m?options=-c%20statement_timeout=5";
        let config = PostgresUrl::parse(url)
            .unwrap()
            .into_config(&[("TimeZone", "UTC")]);
        let options = config.get_options();
        assert_eq!(options, Some("-c TimeZone=UTC -c statement_timeout=5"));
    }
}
