"""infra/cloudformation/notify.py, run as AWS runs it: the text in the template, against moto."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.sns.models import sns_backends

from launch.aws.client import Aws
from launch.aws.names import TIME
from launch.aws.refusals import PERMISSIONS
from launch.infra.template import filled_notify, read
from launch.rehearse.aws.batch.scheduler import step
from launch.rehearse.aws.sagemaker.changes import advance, fail
from tests.launch.ec2.account import Account
from tests.launch.infra.account import NewAccount
from tests.launch.infra.test_sweep import start
from tests.launch.infra.test_template import policy
from tests.launch.sagemaker.account import SageMakerAccount
from tests.launch.sagemaker.known import plan
from tests.launch.sagemaker.test_policies import grants
from tests.launch.sagemaker.test_queue import opened, put

TEXT = filled_notify("123456789012", "us-east-1")
THINGS: dict[str, Any] = read(TEXT)["Resources"]


class Notifier:
    """The function, and the mail that it sent.  now: its clock."""

    def __init__(self, bucket: str, patch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, Any] = {}
        exec(THINGS["Notifier"]["Properties"]["Code"]["ZipFile"], self.names)
        self.begun = self.now = datetime.now(UTC).replace(microsecond=0)
        here = self

        class Clock(datetime):
            @classmethod
            def now(cls, _zone: Any = None) -> datetime:  # type: ignore[override]
                return here.now

        self.names["datetime"] = Clock
        topic = boto3.client("sns").create_topic(Name="aws-ddp-toolkit-notify")["TopicArn"]
        self._topic = sns_backends["123456789012"]["us-east-1"].topics[topic]
        for name, value in {"BUCKET": bucket, "TOPIC": topic, "HOOK": ""}.items():
            patch.setenv(name, value)

    def after(self, minutes: float = 0) -> list[str]:
        """The mails of the look at so many minutes after the start."""
        before = len(self.sent)
        self.now = self.begun + timedelta(minutes=minutes)
        self.names["notify"]({}, None)
        return self.sent[before:]

    @property
    def sent(self) -> list[str]:
        return [row[1] for row in self._topic.sent_notifications]


@pytest.fixture
def notifier(account: Account, monkeypatch: pytest.MonkeyPatch) -> Notifier:
    return Notifier(account.bucket, monkeypatch)


def launched(account: Account, aws: Aws, notifier: Notifier) -> str:
    """A node of a job with a limit of two hours, which costs 1.5 USD an hour."""
    tags = {"started": notifier.begun.strftime(TIME), "deadline": (notifier.begun + timedelta(hours=2)).strftime(TIME)}
    return start(account, aws, job="demo", bucket=account.bucket, **tags, **{"usd-per-hour": "1.5"})


def end(account: Account, aws: Aws, node: str, **record: Any) -> None:
    """The node writes its record, and ends."""
    content = {"code": 0, "step": "train", "reason": "", "rank": 0, "instance": node, **record}
    account.put(account.bucket, f"jobs/demo/exits/{node}.json", json.dumps(content).encode())
    aws.call("ec2", "TerminateInstances", {"InstanceIds": [node]})


def log(aws: Aws, at: datetime) -> None:
    """A line of the job's node."""
    group = {"logGroupName": "/aws-ddp-toolkit/ec2"}
    aws.call("logs", "CreateLogGroup", group)
    aws.call("logs", "CreateLogStream", {**group, "logStreamName": "demo/node-0"})
    event = {"timestamp": int(at.timestamp() * 1000), "message": "epoch 1"}
    aws.call("logs", "PutLogEvents", {**group, "logStreamName": "demo/node-0", "logEvents": [event]})


# ---- EC2


def test_half_of_the_limit_and_the_end_are_sent_once_each(account: Account, aws: Aws, notifier: Notifier) -> None:
    node = launched(account, aws, notifier)
    start(account, aws)  # somebody else's
    log(aws, notifier.begun)
    assert notifier.after(0) == notifier.after(55) == []

    (half,) = notifier.after(60)
    assert half.splitlines() == [
        "job demo (launch.ec2, us-east-1) has spent half of its time limit",
        "it has run for 1.0 hours, about 1.50 USD on demand",
        f"its time limit is {notifier.begun + timedelta(hours=2):{TIME}}",
        "python -m launch.ec2 status demo --region us-east-1",
    ]
    end(account, aws, node, code=5, reason="the loss is NaN")
    assert notifier.after(65) == []  # a launcher may replace the node
    (ended,) = notifier.after(80)
    assert ended.splitlines()[:2] == [
        "job demo (launch.ec2, us-east-1) has ended: failed, exit code 5", "the loss is NaN",
    ]  # fmt: skip
    assert [notifier.after(minutes) for minutes in (85, 130, 300, 305)] == [[], [], [], []]


def test_a_job_that_logs_nothing_for_an_hour_is_reported_once(account: Account, aws: Aws, notifier: Notifier) -> None:
    launched(account, aws, notifier)
    log(aws, notifier.begun + timedelta(minutes=20))
    assert ["half" in mail for mail in notifier.after(75)] == [True]
    (stuck,) = notifier.after(85)
    assert "has logged nothing for an hour" in stuck
    assert notifier.after(90) == []


def test_a_launchers_word_on_the_end_is_taken_at_once_but_not_that_of_an_earlier_start(
    account: Account, aws: Aws, notifier: Notifier
) -> None:
    launched(account, aws, notifier)
    outcome = {"state": "done", "exit_code": 0, "reason": "", "ended": "2020-01-01T00:00:00Z"}
    account.put(account.bucket, "jobs/demo/outcome.json", json.dumps(outcome).encode())
    assert notifier.after(10) == []
    outcome["ended"] = (notifier.begun + timedelta(minutes=12)).strftime(TIME)
    account.put(account.bucket, "jobs/demo/outcome.json", json.dumps(outcome).encode())
    (ended,) = notifier.after(15)
    assert ended.splitlines()[:2] == [
        "job demo (launch.ec2, us-east-1) has ended: done, exit code 0", "it ran 0.2 hours, about 0.30 USD on demand",
    ]  # fmt: skip
    assert notifier.after(20) == notifier.after(25) == []  # the node waits for the next job


def test_what_could_not_be_sent_is_sent_at_the_next_look(
    account: Account, aws: Aws, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(account, aws, notifier)
    log(aws, notifier.begun + timedelta(minutes=30))
    with monkeypatch.context() as broken:
        broken.setenv("HOOK", "/ddp-toolkit/missing")
        broken.setenv("TOPIC", "")
        with pytest.raises(RuntimeError, match="ec2 demo, half: ParameterNotFound"):
            notifier.after(60)
    assert len(notifier.after(65)) == 1


def test_a_service_that_does_not_answer_keeps_no_message_back_and_ends_no_job(
    account: Account, aws: Aws, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(account, aws, notifier)
    log(aws, notifier.begun + timedelta(minutes=30))
    notifier.after(0)

    def in_queues(*_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeJobQueues")

    monkeypatch.setitem(notifier.names, "in_queues", in_queues)
    with pytest.raises(RuntimeError, match=r"^in_queues: ClientError AccessDeniedException$"):
        notifier.after(60)
    (half,) = notifier.sent
    assert "has spent half" in half
    monkeypatch.setitem(notifier.names, "on_ec2", in_queues)
    for minutes in (65, 85):
        with pytest.raises(RuntimeError, match=r"in_queues: .*; in_queues: "):
            notifier.after(minutes)
    assert notifier.sent == [half]


def test_a_tag_that_is_no_time_keeps_no_other_jobs_message_back(account: Account, aws: Aws, notifier: Notifier) -> None:
    start(account, aws, job="edited", started="yesterday")
    launched(account, aws, notifier)
    log(aws, notifier.begun + timedelta(minutes=30))
    with pytest.raises(RuntimeError, match=r"^edited: ValueError$"):
        notifier.after(60)
    assert [mail.split()[1] for mail in notifier.sent] == ["demo"]


def test_what_was_sent_is_not_sent_again_if_the_run_ends_early(
    account: Account, aws: Aws, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(account, aws, notifier)  # which logs nothing: two messages
    send, left = notifier.names["send"], [None]

    def stop(*given: Any) -> None:
        if not left:
            raise KeyboardInterrupt  # as Lambda ends what takes too long
        left.pop()
        send(*given)

    monkeypatch.setitem(notifier.names, "send", stop)
    with pytest.raises(KeyboardInterrupt):
        notifier.after(61)
    monkeypatch.setitem(notifier.names, "send", send)
    notifier.after(66)
    assert ["half" in mail for mail in notifier.sent] == [True, False]


def test_the_end_is_reported_in_full_if_another_job_has_the_nodes_already(
    account: Account, aws: Aws, notifier: Notifier
) -> None:
    node = launched(account, aws, notifier)
    notifier.after(0)
    ended = (notifier.begun + timedelta(minutes=12)).strftime(TIME)
    outcome = {"state": "failed", "exit_code": 5, "reason": "the loss is NaN", "ended": ended}
    account.put(account.bucket, "jobs/demo/outcome.json", json.dumps(outcome).encode())
    tags = {"Name": "aws-ddp-toolkit-next", "aws-ddp-toolkit:job": "next", "aws-ddp-toolkit:started": ended}
    aws.call("ec2", "CreateTags", {"Resources": [node], "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]})
    (mail,) = notifier.after(15)
    assert mail.startswith("job demo (launch.ec2, us-east-1) has ended: failed, exit code 5\nthe loss is NaN\n")
    assert notifier.after(20) == []


def test_nodes_that_stay_warm_for_hours_repeat_no_message(account: Account, aws: Aws, notifier: Notifier) -> None:
    launched(account, aws, notifier)
    notifier.after(0)
    ended = (notifier.begun + timedelta(minutes=12)).strftime(TIME)
    outcome = {"state": "done", "exit_code": 0, "reason": "", "ended": ended}
    account.put(account.bucket, "jobs/demo/outcome.json", json.dumps(outcome).encode())
    assert len(notifier.after(15)) == 1
    assert [notifier.after(60 * hours) for hours in (2, 4, 6, 8)] == [[], [], [], []]


def test_a_job_that_is_started_again_has_an_end_and_a_half_of_its_own(
    account: Account, aws: Aws, notifier: Notifier
) -> None:
    end(account, aws, launched(account, aws, notifier), code=5)
    notifier.after(0)
    ended = (notifier.begun + timedelta(minutes=1)).strftime(TIME)
    outcome = {"state": "failed", "exit_code": 5, "reason": "", "ended": ended}
    account.put(account.bucket, "jobs/demo/outcome.json", json.dumps(outcome).encode())
    again = notifier.begun + timedelta(minutes=20)
    tags = {"started": again.strftime(TIME), "deadline": (again + timedelta(hours=2)).strftime(TIME)}
    node = start(account, aws, job="demo", bucket=account.bucket, **tags)
    log(aws, notifier.begun + timedelta(minutes=60))
    assert notifier.after(25) == []
    end(account, aws, node, code=0)
    assert notifier.after(30) == []  # of the first start is the outcome; a launcher may replace the node


def test_half_of_the_limit_is_sent_for_each_start(account: Account, aws: Aws, notifier: Notifier) -> None:
    log(aws, notifier.begun + timedelta(minutes=30))
    aws.call("ec2", "TerminateInstances", {"InstanceIds": [launched(account, aws, notifier)]})
    launched(account, aws, notifier)
    assert len(notifier.after(60)) == 1
    started = (notifier.begun + timedelta(minutes=1)).strftime(TIME)  # and nobody looked in between
    deadline = (notifier.begun + timedelta(minutes=61)).strftime(TIME)
    start(account, aws, job="demo", bucket=account.bucket, started=started, deadline=deadline)
    assert len(notifier.after(65)) == 1
    assert notifier.after(70) == []


def test_a_replaced_machine_is_not_paid_twice(account: Account, aws: Aws, notifier: Notifier) -> None:
    node = launched(account, aws, notifier)
    log(aws, notifier.begun + timedelta(minutes=30))
    notifier.after(0)
    aws.call("ec2", "TerminateInstances", {"InstanceIds": [node]})
    node = launched(account, aws, notifier)
    (half,) = notifier.after(60)
    assert "about 1.50 USD" in half
    end(account, aws, node)
    notifier.after(65)
    (ended,) = notifier.after(80)
    assert "it ran 1.1 hours, about 1.62 USD" in ended


def test_its_role_may_do_what_it_does(account: Account, aws: Aws, notifier: Notifier) -> None:
    node = launched(account, aws, notifier)
    notifier.after(0)
    end(account, aws, node)
    account.requests.clear()
    notifier.after(70)
    notifier.after(85)
    refused = set()
    for call in account.requests:
        place = call.params.get("Bucket", "") + "/" + call.params.get("Key", "")
        resource = call.params.get("TopicArn") or f"arn:aws:s3:::{place}" if call.service in ("s3", "sns") else "*"
        action = PERMISSIONS.get(str(call), str(call))
        if not grants("notify.json", action, resource, **{"s3:ResourceAccount": "123456789012"}):
            refused.add((action, resource))
    assert refused == set()
    assert {"ec2:DescribeInstances", "s3:PutObject", "sns:Publish"} <= {str(call) for call in account.requests}


def test_a_job_in_a_queue_lives_while_its_launcher_or_its_nodes_do(notifier: Notifier) -> None:
    """Rows as in https://docs.aws.amazon.com/batch/latest/APIReference/API_JobSummary.html."""
    names = notifier.names
    waits = names["launcher"]({"jobName": "demo", "status": "RUNNABLE"}, False)
    over = {"jobName": "demo", "status": "FAILED", "statusReason": "no such image", "stoppedAt": 0}
    failed = names["launcher"](over, True)
    runs, gone = (names["a_job"]("ec2", "demo", live, started=notifier.begun.strftime(TIME)) for live in (True, False))

    def news(*found: Any, **known: Any) -> list[str]:
        jobs = names["merge"]({"ec2 demo": {**found[-1], "gone": None, "sent": [], **known}}, found)
        return [kind for _, kind in names["decide"](jobs, notifier.now)]

    assert news(waits) == news(waits, gone) == news(failed, runs) == news(gone) == []
    assert news(failed) == news(failed, gone) == ["ended"]
    assert names["joined"]([failed, gone])["ec2 demo"]["state"] == "failed"
    assert news(failed, sent=["ended"]) == []
    assert names["merge"]({"ec2 demo": {**gone, "gone": None, "sent": ["ended"]}}, [runs])["ec2 demo"]["sent"] == []


def test_of_the_jobs_of_one_name_in_a_queue_the_newest_counts(notifier: Notifier) -> None:
    now = int(notifier.now.timestamp() * 1000)
    rows = [  # the newest first: https://docs.aws.amazon.com/batch/latest/APIReference/API_ListJobs.html
        {"jobName": "demo", "status": "SUCCEEDED", "createdAt": now - 1000, "stoppedAt": now},
        {"jobName": "demo", "status": "FAILED", "createdAt": now - 9000, "stoppedAt": now - 5000, "statusReason": "no"},
    ]
    answers = {"describe_job_queues": [{"jobQueueName": "aws-ddp-toolkit-demo-ec2"}], "list_jobs": rows}
    notifier.names["rows"] = lambda _client, operation, *_, **__: answers[operation]
    ((name, reader),) = notifier.names["in_queues"](lambda _: None, notifier.now)
    assert (name, reader()["state"], reader()["reason"]) == ("demo", "done", None)


# ---- the webhook


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any]]]:
    """The address of a server here, and what was posted to it."""
    posted: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(404 if self.path == "/gone" else 200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()


def test_a_webhook_is_called_and_its_address_stays_secret(
    account: Account, aws: Aws, notifier: Notifier, hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, posted = hook
    launched(account, aws, notifier)
    log(aws, notifier.begun + timedelta(minutes=30))
    monkeypatch.setenv("TOPIC", "")
    monkeypatch.setenv("HOOK", "/ddp-toolkit/webhook")
    secret = {"Name": "/ddp-toolkit/webhook", "Type": "SecureString", "Overwrite": True}
    aws.call("ssm", "PutParameter", {**secret, "Value": f"{address}/gone"})
    with pytest.raises(RuntimeError) as failure:
        notifier.after(60)
    assert str(failure.value) == "ec2 demo, half: HTTPError 404"
    assert failure.value.__context__ is None

    aws.call("ssm", "PutParameter", {**secret, "Value": address})
    notifier.after(65)
    kind, body = posted[-1]
    assert kind == "application/json"
    assert body["text"].startswith("job demo (launch.ec2, us-east-1) has spent half of its time limit\n")


def test_a_file_that_cannot_be_read_keeps_no_message_back(account: Account, aws: Aws, notifier: Notifier) -> None:
    node = launched(account, aws, notifier)
    notifier.after(0)
    end(account, aws, node)
    account.put(account.bucket, f"jobs/demo/exits/{node}.json", b"nonsense")
    with pytest.raises(RuntimeError, match="demo: JSONDecodeError"):
        notifier.after(5)
    with pytest.raises(RuntimeError, match="demo: JSONDecodeError"):
        notifier.after(20)
    (ended,) = notifier.sent
    assert "has ended: no machine of it runs" in ended


# ---- SageMaker, directly and through a queue


def test_a_training_job_is_reported_at_half_of_its_limit_and_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html"""
    with SageMakerAccount.opened() as account:
        notifier = Notifier(account.bucket, monkeypatch)
        (request,) = (one.params for one in plan(max_hours=2).requests if one.operation == "CreateTrainingJob")
        account.aws().call("sagemaker", "CreateTrainingJob", request)
        account.aws().call("sagemaker", "CreateTrainingJob", {**request, "TrainingJobName": "theirs", "Tags": []})
        for job in account.jobs.values():
            advance(job)
        assert notifier.after(0) == []
        account.rules.now = lambda: notifier.begun + timedelta(minutes=30)
        account.log("cifar10-1", "algo-1", ["epoch 1"])
        (half,) = notifier.after(61)
        assert half.startswith("job cifar10-1 (launch.sagemaker, us-east-1) has spent half of its time limit\n")

        for job in account.jobs.values():
            fail(job, "AlgorithmError: exit code 3")
        (ended,) = notifier.after(66)
        assert ended.splitlines()[:2] == [
            "job cifar10-1 (launch.sagemaker, us-east-1) has ended: failed", "AlgorithmError: exit code 3",
        ]  # fmt: skip
        assert notifier.after(71) == notifier.after(60 * 5) == []
        for job in account.jobs.values():  # as the end of a warm pool may do
            job.described["LastModifiedTime"] = notifier.now + timedelta(minutes=5)
        assert notifier.after(60 * 5 + 10) == []


def test_training_jobs_of_a_queue_are_reported_by_their_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened() as stage:
        notifier = Notifier(stage.account.bucket, monkeypatch)
        put(stage, "queued")
        assert notifier.after(0) == []
        (training,) = stage.account.jobs.values()
        advance(training)
        fail(training, "AlgorithmError: exit code 3")
        step(stage.account.rules)
        (ended,) = notifier.after(5)
        assert ended.startswith("job queued (launch.sagemaker, us-east-1) has ended: failed\n")
        assert notifier.after(10) == []


# ---- the template


def test_it_starts_itself_with_a_role_that_has_the_statements_of_its_file() -> None:
    role, function, schedule = (THINGS[name]["Properties"] for name in ("NotifierRole", "Notifier", "NotifierSchedule"))
    assert role["AssumeRolePolicyDocument"] == policy("notify-trust")
    assert role["Policies"] == [{"PolicyName": "notify", "PolicyDocument": policy("notify")}]
    assert function["Role"] == schedule["Target"]["RoleArn"] == {"Fn::GetAtt": ["NotifierRole", "Arn"]}
    assert function["Handler"] == "index.notify"
    assert len(TEXT.encode()) <= 51_200
    # Others than principals of the account cannot use this key: https://docs.aws.amazon.com/sns/latest/dg/
    # sns-key-management.html#compatibility-with-aws-services
    assert THINGS["Topic"]["Properties"]["KmsMasterKeyId"] == "alias/aws/sns"


def test_up_makes_the_stack_and_keeps_it_until_no_notify(new: NewAccount) -> None:
    assert new.type("up", "--notify", "you@example.org") == 0
    assert "AWS sends you@example.org a mail with a link to confirm" in new.out
    assert new.type("up") == 0
    assert [stack.name for stack in new.stacks] == ["aws-ddp-toolkit", "aws-ddp-toolkit-notify"]
    assert new.type("up", "--notify", "ssm:/ddp-toolkit/webhook") == 0
    assert new.type("show") == 0
    assert "Hook       /ddp-toolkit/webhook" in new.out
    assert new.type("up", "--no-notify") == 0
    assert new.questions == [
        "this deletes or replaces Topic", "this deletes the stack aws-ddp-toolkit-notify in us-east-1",
    ]  # fmt: skip
    assert [stack.name for stack in new.stacks] == ["aws-ddp-toolkit"]


def test_down_removes_it_before_the_accounts(new: NewAccount) -> None:
    new.type("up", "--notify", "you@example.org")
    assert new.type("down", "--keep-data") == 0
    assert new.stacks == []


def test_down_says_to_remove_it_before_one_empties_the_bucket_that_it_writes_into(new: NewAccount) -> None:
    new.type("up", "--notify", "you@example.org")
    new.aws().call("s3", "PutObject", {"Bucket": new.bucket, "Key": "notify.json", "Body": b"{}"})
    assert new.type("down") == 4
    assert new.err.index("up --no-notify --region us-east-1") < new.err.index("object_versions.delete()")
    new.type("up", "--no-notify")
    assert new.type("down") == 4
    assert "--no-notify" not in new.err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--notify", "https://hooks.example.org/secret"], "aws ssm put-parameter --type SecureString"),
        (["--notify", "nowhere"], "is no address"),
        (["--notify", "ssm:/elsewhere/hook"], "is no address"),
        (["--notify", "a@example.org", "--no-notify"], "contradict"),
    ],
)
def test_what_is_no_recipient_is_refused_and_a_secret_is_not_repeated(
    flags: list[str], why: str, new: NewAccount
) -> None:
    assert new.type("plan", *flags) == 2
    assert why in new.err
    assert "hooks.example.org" not in new.out + new.err
    assert new.requests == []
