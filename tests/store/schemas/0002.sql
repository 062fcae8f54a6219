-- A database of schema 0002 as mlbench made it, with a row in every table. Never change this file.
BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE allreduce (
	id INTEGER NOT NULL, 
	run_set_id INTEGER NOT NULL, 
	backend VARCHAR NOT NULL, 
	transport VARCHAR NOT NULL, 
	num_ranks INTEGER NOT NULL, 
	hosts JSON NOT NULL, 
	in_place BOOLEAN NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	time_us DOUBLE NOT NULL, 
	algbw_gb_per_s DOUBLE NOT NULL, 
	busbw_gb_per_s DOUBLE NOT NULL, 
	num_wrong INTEGER, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_set_id) REFERENCES run_set (id) ON DELETE CASCADE
);
INSERT INTO "allreduce" VALUES(1,1,'horovod','Gloo',8,'["a", "b"]',0,8589934592,1.5,1.0,1.75,0);
INSERT INTO "allreduce" VALUES(2,2,'horovod','Gloo',8,'["a", "b"]',0,8589934592,1.5,1.0,1.75,0);
CREATE TABLE baseline (
	name VARCHAR NOT NULL, 
	run_set_id INTEGER NOT NULL, 
	pinned_at DATETIME NOT NULL, 
	PRIMARY KEY (name), 
	FOREIGN KEY(run_set_id) REFERENCES run_set (id) ON DELETE CASCADE
);
INSERT INTO "baseline" VALUES('good',1,'2024-06-01 00:00:00.000000');
CREATE TABLE epoch (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	epoch_num DOUBLE, 
	num_epochs DOUBLE NOT NULL, 
	start_s DOUBLE NOT NULL, 
	duration_s DOUBLE NOT NULL, 
	samples_per_s DOUBLE, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "epoch" VALUES(1,1,'epoch',1.0,1.0,0.0,62.5,NULL);
INSERT INTO "epoch" VALUES(2,2,'epoch',1.0,1.0,0.0,62.5,NULL);
INSERT INTO "epoch" VALUES(3,3,'epoch',1.0,1.0,0.0,62.5,NULL);
INSERT INTO "epoch" VALUES(4,4,'epoch',1.0,1.0,0.0,62.5,NULL);
INSERT INTO "epoch" VALUES(5,5,'epoch',1.0,1.0,0.0,62.5,NULL);
INSERT INTO "epoch" VALUES(6,6,'epoch',1.0,1.0,0.0,62.5,NULL);
INSERT INTO "epoch" VALUES(7,7,'epoch',1.0,1.0,0.0,62.5,NULL);
CREATE TABLE evaluation (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	epoch_num DOUBLE, 
	accuracy DOUBLE NOT NULL, 
	time_s DOUBLE, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "evaluation" VALUES(1,1,1.0,0.1,62.6);
INSERT INTO "evaluation" VALUES(2,2,1.0,0.1,62.6);
INSERT INTO "evaluation" VALUES(3,3,1.0,0.1,62.6);
INSERT INTO "evaluation" VALUES(4,4,1.0,0.1,62.6);
INSERT INTO "evaluation" VALUES(5,5,1.0,0.1,62.6);
INSERT INTO "evaluation" VALUES(6,6,1.0,0.1,62.6);
INSERT INTO "evaluation" VALUES(7,7,1.0,0.1,62.6);
CREATE TABLE host_fact (
	id INTEGER NOT NULL, 
	run_set_id INTEGER NOT NULL, 
	host VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_set_id) REFERENCES run_set (id) ON DELETE CASCADE
);
INSERT INTO "host_fact" VALUES(1,1,'a','kernel','5.3.0');
INSERT INTO "host_fact" VALUES(2,2,'a','kernel','5.3.0');
CREATE TABLE hyperparameter (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	"key" VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "hyperparameter" VALUES(1,1,'opt_name','"lars"');
INSERT INTO "hyperparameter" VALUES(2,2,'opt_name','"lars"');
INSERT INTO "hyperparameter" VALUES(3,3,'opt_name','"lars"');
INSERT INTO "hyperparameter" VALUES(4,4,'opt_name','"lars"');
INSERT INTO "hyperparameter" VALUES(5,5,'opt_name','"lars"');
INSERT INTO "hyperparameter" VALUES(6,6,'opt_name','"lars"');
INSERT INTO "hyperparameter" VALUES(7,7,'opt_name','"lars"');
CREATE TABLE note (
	id INTEGER NOT NULL, 
	run_set_id INTEGER NOT NULL, 
	severity VARCHAR NOT NULL, 
	rule VARCHAR, 
	file VARCHAR, 
	line INTEGER, 
	text VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_set_id) REFERENCES run_set (id) ON DELETE CASCADE
);
INSERT INTO "note" VALUES(1,1,'note',NULL,'result_0.txt',3,'an oddity');
INSERT INTO "note" VALUES(2,2,'note',NULL,'result_0.txt',3,'an oddity');
CREATE TABLE run (
	id INTEGER NOT NULL, 
	run_set_id INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	warmup BOOLEAN NOT NULL, 
	status VARCHAR NOT NULL, 
	status_reason VARCHAR, 
	converged BOOLEAN NOT NULL, 
	time_to_train_s DOUBLE, 
	epochs DOUBLE, 
	final_accuracy DOUBLE, 
	best_accuracy DOUBLE, 
	quality_target DOUBLE, 
	seed INTEGER, 
	samples_per_s DOUBLE, 
	samples_per_s_first_epoch DOUBLE, 
	samples_per_s_steady DOUBLE, 
	train_samples INTEGER, 
	global_batch_size INTEGER, 
	cache_clear BOOLEAN, 
	started_at DATETIME, 
	init_s DOUBLE, 
	exit_status INTEGER, 
	log_path VARCHAR, 
	log_sha256 VARCHAR, 
	PRIMARY KEY (id), 
	UNIQUE (run_set_id, "index", attempt, warmup), 
	FOREIGN KEY(run_set_id) REFERENCES run_set (id) ON DELETE CASCADE
);
INSERT INTO "run" VALUES(1,1,0,0,0,'success',NULL,1,2190.0,35.0,0.7602,NULL,NULL,11,NULL,NULL,NULL,NULL,NULL,NULL,'2024-05-01 09:30:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(2,1,1,0,0,'success',NULL,1,2191.0,35.0,0.7602,NULL,NULL,12,NULL,NULL,NULL,NULL,NULL,NULL,'2024-05-01 10:30:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(3,2,0,0,0,'success',NULL,1,2190.0,35.0,0.7602,NULL,NULL,11,NULL,NULL,NULL,NULL,NULL,NULL,'2024-05-01 09:30:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(4,2,1,0,0,'success',NULL,1,2191.0,35.0,0.7602,NULL,NULL,12,NULL,NULL,NULL,NULL,NULL,NULL,'2024-05-01 10:30:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(5,2,2,0,0,'success',NULL,1,2192.0,35.0,0.7602,NULL,NULL,13,NULL,NULL,NULL,NULL,NULL,NULL,'2024-05-01 11:30:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(6,2,3,0,0,'success',NULL,1,2193.0,35.0,0.7602,NULL,NULL,14,NULL,NULL,NULL,NULL,NULL,NULL,'2024-05-01 12:30:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(7,2,4,0,0,'success',NULL,1,2194.0,35.0,0.7602,NULL,NULL,15,NULL,NULL,NULL,NULL,NULL,NULL,'2024-05-01 13:30:00.000000',NULL,NULL,NULL,NULL);
CREATE TABLE run_set (
	id INTEGER NOT NULL, 
	run_set VARCHAR NOT NULL, 
	origin VARCHAR NOT NULL, 
	rehearsal BOOLEAN NOT NULL, 
	round VARCHAR, 
	org VARCHAR, 
	org_logged VARCHAR, 
	system VARCHAR, 
	system_id INTEGER, 
	division VARCHAR, 
	benchmark VARCHAR, 
	model VARCHAR, 
	framework VARCHAR, 
	ruleset VARCHAR, 
	launcher VARCHAR, 
	num_nodes INTEGER, 
	num_accelerators INTEGER, 
	num_ranks INTEGER, 
	global_batch_size INTEGER, 
	repeats_asked INTEGER, 
	num_runs INTEGER NOT NULL, 
	num_converged INTEGER NOT NULL, 
	score_s DOUBLE, 
	score_status VARCHAR NOT NULL, 
	score_reason VARCHAR, 
	olympic_mean_s DOUBLE, 
	scaling_factor DOUBLE, 
	rcp_factor DOUBLE, 
	mean_s DOUBLE, 
	min_s DOUBLE, 
	max_s DOUBLE, 
	cv DOUBLE, 
	samples_per_s DOUBLE, 
	samples_per_s_first_epoch DOUBLE, 
	throughput_method VARCHAR, 
	cache VARCHAR, 
	started_at DATETIME, 
	finished_at DATETIME, 
	path VARCHAR, 
	content_hash VARCHAR NOT NULL, 
	config JSON NOT NULL, 
	provenance JSON NOT NULL, 
	runs_folder VARCHAR, 
	PRIMARY KEY (id), 
	UNIQUE (run_set), 
	FOREIGN KEY(system_id) REFERENCES system (id)
);
INSERT INTO "run_set" VALUES(1,'set-a','run',0,NULL,'LabX',NULL,'DSS8440',1,'closed','resnet',NULL,'MXNet 1.9.1',NULL,NULL,1,8,8,3264,NULL,2,2,2190.0,'valid',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,20711.5,NULL,NULL,NULL,'2024-05-01 09:30:00.000000',NULL,NULL,'hash of set-a','{"gpus": 8}','{"git_commit": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}','0123456789abcdef');
INSERT INTO "run_set" VALUES(2,'v0.7/Lab/sys/resnet','import',0,'v0.7','LabX',NULL,'DSS8440',1,'closed','resnet',NULL,'MXNet 1.9.1',NULL,NULL,1,8,8,3264,NULL,5,5,2190.0,'valid',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,20711.5,NULL,NULL,NULL,'2024-05-01 09:30:00.000000',NULL,NULL,'hash of v0.7/Lab/sys/resnet','{"gpus": 8}','{"git_commit": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}',NULL);
CREATE TABLE storage (
	id INTEGER NOT NULL, 
	run_set_id INTEGER NOT NULL, 
	tool VARCHAR NOT NULL, 
	host VARCHAR, 
	endpoint VARCHAR, 
	pattern VARCHAR NOT NULL, 
	cache VARCHAR NOT NULL, 
	block_bytes INTEGER NOT NULL, 
	num_readers INTEGER NOT NULL, 
	file_set_bytes INTEGER, 
	total_bytes INTEGER, 
	runtime_s DOUBLE, 
	bandwidth_bytes_per_s DOUBLE, 
	iops DOUBLE, 
	latency_mean_s DOUBLE, 
	latency_p99_s DOUBLE, 
	status VARCHAR NOT NULL, 
	reason VARCHAR, 
	PRIMARY KEY (id), 
	FOREIGN KEY(run_set_id) REFERENCES run_set (id) ON DELETE CASCADE
);
INSERT INTO "storage" VALUES(1,1,'fio',NULL,NULL,'sequential','direct',1048576,4,NULL,NULL,NULL,1000000000.0,NULL,NULL,NULL,'measured',NULL);
INSERT INTO "storage" VALUES(2,2,'fio',NULL,NULL,'sequential','direct',1048576,4,NULL,NULL,NULL,1000000000.0,NULL,NULL,NULL,'measured',NULL);
CREATE TABLE system (
	id INTEGER NOT NULL, 
	origin VARCHAR NOT NULL, 
	round VARCHAR, 
	org VARCHAR, 
	name VARCHAR NOT NULL, 
	fingerprint VARCHAR NOT NULL, 
	submitter VARCHAR, 
	system_name VARCHAR, 
	division VARCHAR, 
	status VARCHAR, 
	num_nodes INTEGER, 
	accelerators_per_node INTEGER, 
	accelerator_model VARCHAR, 
	host_processors_per_node INTEGER, 
	host_processor_model VARCHAR, 
	framework VARCHAR, 
	description JSON NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (fingerprint)
);
INSERT INTO "system" VALUES(1,'run',NULL,'LabX','DSS8440','9f2b17061e356380e41a182687912a799a71cc8059435cd54b1d12047fd3ca30',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"nodes": 1}');
CREATE TABLE telemetry (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	host VARCHAR NOT NULL, 
	metric VARCHAR NOT NULL, 
	num_points INTEGER NOT NULL, 
	mean DOUBLE, 
	min DOUBLE, 
	max DOUBLE, 
	times_s JSON NOT NULL, 
	points JSON NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (run_id, host, metric), 
	FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "telemetry" VALUES(1,1,'a','cpu_share',3,0.5,0.25,0.75,'[0.0, 1.0, 2.0]','[0.25, null, 0.75]');
INSERT INTO "telemetry" VALUES(2,2,'a','cpu_share',3,0.5,0.25,0.75,'[0.0, 1.0, 2.0]','[0.25, null, 0.75]');
INSERT INTO "telemetry" VALUES(3,3,'a','cpu_share',3,0.5,0.25,0.75,'[0.0, 1.0, 2.0]','[0.25, null, 0.75]');
INSERT INTO "telemetry" VALUES(4,4,'a','cpu_share',3,0.5,0.25,0.75,'[0.0, 1.0, 2.0]','[0.25, null, 0.75]');
INSERT INTO "telemetry" VALUES(5,5,'a','cpu_share',3,0.5,0.25,0.75,'[0.0, 1.0, 2.0]','[0.25, null, 0.75]');
INSERT INTO "telemetry" VALUES(6,6,'a','cpu_share',3,0.5,0.25,0.75,'[0.0, 1.0, 2.0]','[0.25, null, 0.75]');
INSERT INTO "telemetry" VALUES(7,7,'a','cpu_share',3,0.5,0.25,0.75,'[0.0, 1.0, 2.0]','[0.25, null, 0.75]');
CREATE INDEX ix_run_set_started_at ON run_set (started_at);
CREATE INDEX ix_run_set_filter ON run_set (benchmark, system, started_at);
CREATE INDEX ix_run_run_set_id ON run (run_set_id);
CREATE INDEX ix_note_run_set_id ON note (run_set_id);
CREATE INDEX ix_allreduce_run_set_id ON allreduce (run_set_id);
CREATE INDEX ix_storage_run_set_id ON storage (run_set_id);
CREATE INDEX ix_host_fact_run_set_id ON host_fact (run_set_id);
CREATE INDEX ix_epoch_run_id ON epoch (run_id);
CREATE INDEX ix_evaluation_run_id ON evaluation (run_id);
CREATE INDEX ix_hyperparameter_run_id ON hyperparameter (run_id);
COMMIT;
