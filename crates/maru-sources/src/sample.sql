CREATE TABLE documents (
    id       INTEGER PRIMARY KEY,
    title    TEXT NOT NULL,
    content  TEXT NOT NULL,
    category TEXT NOT NULL
);
CREATE TABLE employees (
    id         TEXT PRIMARY KEY CHECK (id GLOB 'EMP[0-9][0-9][0-9]'),
    name       TEXT NOT NULL,
    department TEXT NOT NULL,
    hire_date  TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE vacations (
    employee_id TEXT NOT NULL REFERENCES employees (id),
    year        INTEGER NOT NULL,
    total       REAL NOT NULL,
    used        REAL NOT NULL,
    PRIMARY KEY (employee_id, year)
) WITHOUT ROWID;

INSERT INTO documents (id, title, content, category) VALUES
    (1, '연차 휴가 규정', '입사 1년 이상 직원은 연 15일의 연차를 받는다. 3년마다 1일이 가산되며 최대 25일이다. 반차는 0.5일로 계산한다.', 'HR'),
    (2, 'Remote work policy', 'Employees may work remotely up to three days a week. Agree on the days with your team lead and keep the shared calendar up to date.', 'HR'),
    (3, '보안 지침', '비밀번호는 12자 이상이어야 하며 분기마다 변경한다. 사내 문서는 개인 메일로 보내지 않는다.', 'Security'),
    (4, 'Incident response', 'Report an incident in the channel #incident within 15 minutes. The on-call engineer leads, keeps a timeline and writes the review.', 'Security'),
    (5, '출장비 정산 안내', '출장 종료 후 7일 이내에 영수증을 첨부하여 정산을 신청한다. 일비는 국내 30,000원, 해외 60,000원이다.', 'Finance'),
    (6, 'Deployment guide', 'Releases leave on Tuesdays and Thursdays. Run the full test suite, tag the commit, and watch error rates for 30 minutes after the rollout.', 'Engineering'),
    (7, '신규 입사자 안내', '첫 주에는 장비 수령, 계정 발급, 보안 교육을 마친다. 멘토가 한 달 동안 함께한다.', 'HR'),
    (8, 'MCP tool guide', 'Tools are called by name with JSON arguments. Describe each parameter so that a model knows when to use the tool and what to pass.', 'Engineering');

INSERT INTO employees (id, name, department, hire_date) VALUES
    ('EMP001', '김민준', 'Engineering', '2019-03-04'),
    ('EMP002', '이서연', 'Engineering', '2021-07-19'),
    ('EMP003', '박지훈', 'HR', '2016-01-11'),
    ('EMP004', '최수아', 'Finance', '2022-11-01'),
    ('EMP005', '정도윤', 'Security', '2020-05-25'),
    ('EMP006', 'Alex Morgan', 'Engineering', '2023-09-04'),
    ('EMP007', '한지민', 'HR', '2024-02-13'),
    ('EMP008', 'Sam Taylor', 'Finance', '2018-08-06');

INSERT INTO vacations (employee_id, year, total, used) VALUES
    ('EMP001', 2025, 17, 12.5), ('EMP001', 2026, 17, 6),
    ('EMP002', 2025, 16, 16),   ('EMP002', 2026, 16, 4.5),
    ('EMP003', 2025, 18, 10),   ('EMP003', 2026, 18, 9),
    ('EMP004', 2025, 15, 11),   ('EMP004', 2026, 16, 2),
    ('EMP005', 2025, 16, 8),    ('EMP005', 2026, 17, 7.5),
    ('EMP006', 2025, 15, 13),   ('EMP006', 2026, 15, 3),
    ('EMP007', 2025, 11, 5),    ('EMP007', 2026, 15, 10),
    ('EMP008', 2025, 17, 14),   ('EMP008', 2026, 17, 0);
