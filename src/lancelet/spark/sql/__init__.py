"""SQL over Lance tables on a Spark session, without a JAR."""
